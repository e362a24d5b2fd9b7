// What pages do by themselves: fetch changes while they are looked at, ask before acting, tell what has changed.
"use strict";
(() => {
  const TICK = 5000;
  const SLOW_TICK = 60000;
  const QUICK_TICK = 1000;
  const body = document.body;
  const announcer = document.getElementById("announcer");
  const dialog = document.getElementById("dialog");
  const lost = document.getElementById("lost");
  const said = new Map();

  const announce = (text) => { announcer.textContent = text; };
  const trigger = (name) => body.dispatchEvent(new Event(name));

  // ---- live: only while the page is in view, and only if it is wanted ----------------------------------------------

  const live = document.getElementById("live");
  let isLive = localStorage.getItem("thunder-live") !== "off";
  let slowAt = Date.now();

  const showLive = () => {
    live.setAttribute("aria-pressed", String(isLive));
    live.textContent = isLive ? "Live" : "Live: off";
  };
  const mayFetch = () => isLive && !document.hidden && !dialog.open;
  const tick = () => {
    if (!mayFetch()) return;
    trigger("tick");
    if (Date.now() - slowAt >= SLOW_TICK) {
      slowAt = Date.now();
      trigger("slow-tick");
    }
  };
  live.addEventListener("click", () => {
    isLive = !isLive;
    localStorage.setItem("thunder-live", isLive ? "on" : "off");
    showLive();
    announce(isLive ? "Changes are fetched" : "Changes are not fetched");
    tick();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
  setInterval(tick, TICK);
  setInterval(() => {
    if (mayFetch() && document.querySelector("#job-state[data-state=running]")) trigger("quick-tick");
  }, QUICK_TICK);
  showLive();

  // ---- colours -----------------------------------------------------------------------------------------------------

  const theme = document.getElementById("theme");
  const themes = ["system", "light", "dark"];
  const showTheme = () => {
    const name = document.documentElement.dataset.theme || "system";
    theme.textContent = { system: "◐", light: "☀", dark: "☾" }[name];
    theme.setAttribute("aria-label", `Colours: ${name}`);
    theme.title = `Colours: ${name}`;
  };
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme || "system") + 1) % themes.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    localStorage.setItem("thunder-theme", next);
    showTheme();
    trigger("theme");
  });
  showTheme();

  // ---- choosing rows -----------------------------------------------------------------------------------------------

  const choices = (form) => [...form.querySelectorAll("input[name=id]")];
  const showChosen = (form) => {
    const all = choices(form);
    const count = all.filter((box) => box.checked).length;
    const words = form.querySelector("[data-chosen]");
    if (words) words.textContent = count ? `${count} chosen` : "None chosen";
    for (const button of form.querySelectorAll("[data-needs-choice]")) button.disabled = count === 0;
    const top = form.querySelector("[data-all]");
    if (top) {
      top.checked = count > 0 && count === all.length;
      top.indeterminate = count > 0 && count < all.length;
    }
  };
  const showAllChosen = () => document.querySelectorAll("form.chosen").forEach(showChosen);
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form.chosen");
    if (!form) return;
    if (event.target.matches("[data-all]")) for (const box of choices(form)) box.checked = event.target.checked;
    showChosen(form);
  });
  showAllChosen();

  // ---- asking before acting ----------------------------------------------------------------------------------------

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]") && dialog.open) {
      event.preventDefault();
      dialog.close();
    } else if (event.target === dialog) {
      dialog.close(); // the ground behind it
    }
  });
  document.addEventListener("submit", (event) => {
    // What is sent twice is done twice, or refused; the button is back when the page is.
    if (event.target.method === "post") {
      for (const button of event.target.querySelectorAll("button")) setTimeout(() => { button.disabled = true; });
    }
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) for (const button of document.querySelectorAll("form[method=post] button")) button.disabled = false;
  });

  // ---- parts that are fetched --------------------------------------------------------------------------------------

  let kept = null;
  body.addEventListener("htmx:beforeSwap", (event) => {
    const target = event.detail.target;
    kept = {
      checked: [...target.querySelectorAll("input:checked[id]")].map((box) => box.id),
      open: [...target.querySelectorAll("details[open][id]")].map((box) => box.id),
      scrolled: [...target.querySelectorAll(".scroll")].map((box) => box.scrollLeft),
    };
  });
  body.addEventListener("htmx:afterSwap", (event) => {
    const target = event.detail.target;
    lost.hidden = true;
    if (target.id === "dialog-body") {
      if (!dialog.open) dialog.showModal();
      const first = target.querySelector("input:not([type=hidden]), button");
      if (first) first.focus();
      return;
    }
    for (const id of kept?.checked || []) document.getElementById(id)?.toggleAttribute("checked", true);
    for (const id of kept?.open || []) document.getElementById(id)?.setAttribute("open", "");
    target.querySelectorAll(".scroll").forEach((box, place) => { box.scrollLeft = kept?.scrolled[place] || 0; });
    showAllChosen();
    document.getElementById("updated").textContent = `As of ${new Date().toLocaleTimeString()}`;
    tellChanges(target);
  });
  const tellChanges = (target) => {
    for (const each of target.querySelectorAll("[data-announce]")) {
      const before = said.get(target.id);
      said.set(target.id, each.textContent);
      if (before !== undefined && before !== each.textContent) {
        announce(each.textContent);
        trigger("changed");
      }
    }
  };
  for (const each of document.querySelectorAll("[id] [data-announce]")) {
    said.set(each.closest("[hx-get]")?.id, each.textContent);
  }
  body.addEventListener("htmx:sendError", () => { lost.hidden = false; });
  body.addEventListener("htmx:timeout", () => { lost.hidden = false; });
  document.getElementById("retry").addEventListener("click", () => location.reload());

  document.getElementById("updated").textContent = `As of ${new Date().toLocaleTimeString()}`;

  // ---- small things ------------------------------------------------------------------------------------------------

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      document.getElementById("find").focus();
    }
  });
  const address = new URL(location.href);
  if (address.searchParams.has("notice")) {
    // A notice is for once: loading the page again, or sending the address to somebody, shall not repeat it.
    address.searchParams.delete("notice");
    history.replaceState(null, "", address);
  }
})();
