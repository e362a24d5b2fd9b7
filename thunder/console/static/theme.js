// In the head and not deferred: the colours must be known before the first paint.
"use strict";
(() => {
  const chosen = localStorage.getItem("thunder-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
