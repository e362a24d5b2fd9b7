// Draws what the server has put into [data-chart]. Lines differ by colour and by dash; the legend names each.
"use strict";
(() => {
  const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];
  const HEIGHT = 170;
  const drawn = new Map();

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const seconds = (value) => {
    if (value === 0) return "0";
    if (value < 1) return `${Math.round(value * 1000)} ms`;
    if (value < 120) return `${Number(value.toPrecision(3))} s`;
    return value < 7200 ? `${Number((value / 60).toPrecision(3))} min` : `${Number((value / 3600).toPrecision(3))} h`;
  };
  const short = (value) => {
    if (Math.abs(value) >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
    return Math.abs(value) >= 1e4 ? `${Number((value / 1e3).toPrecision(3))}k` : String(Number(value.toPrecision(4)));
  };
  const shown = (unit) => (value) => {
    if (value === null || value === undefined) return "–";
    return unit === "s" ? seconds(value) : unit === "ms" ? seconds(value / 1000) : short(value);
  };

  const DAY = 86400;
  const clock = (data) => (_, splits) => splits.map((at) => {
    const moment = new Date(at * 1000);
    return data.to - data.from > 2 * DAY
      ? moment.toLocaleDateString([], { month: "short", day: "numeric" })
      : moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  });

  // Steps that read well as time, in seconds.
  const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
  const steps = (unit) => (unit === "s" ? { incrs: STEPS } : unit === "ms" ? { incrs: STEPS.map((step) => step * 1000) } : {});

  const axis = (unit, more) => ({
    stroke: style("--muted"),
    grid: { stroke: style("--line"), width: 1 },
    ticks: { stroke: style("--line"), width: 1 },
    font: "12px system-ui, sans-serif",
    values: (_, splits) => splits.map(shown(unit)),
    ...steps(unit),
    size: (_, values) => Math.max(40, 18 + 7 * Math.max(0, ...(values || []).map((each) => each.length))),
    ...more,
  });

  const line = (series, place, data) => ({
    scale: series.right ? "right" : "y",
    stroke: style(`--chart-${place % 8 + 1}`),
    width: 2,
    dash: DASHES[place % DASHES.length],
    spanGaps: true,
    points: { size: 5, show: series.values.filter((value) => value !== null).length < 40 },
  });

  // The legend is the server's: the last values, or those below the cursor.
  const tell = (element, data, place) => {
    element.parentElement.querySelectorAll(".legend b").forEach((each) => {
      each.textContent = place === null || place === undefined ? each.dataset.value : shown(data.unit)(data.series[each.dataset.series].values[place]);
    });
  };

  const draw = (element) => {
    drawn.get(element)?.destroy();
    const data = JSON.parse(element.dataset.chart);
    const options = {
      width: Math.max(200, element.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      hooks: { setCursor: [(chart) => tell(element, data, chart.cursor.idx)] },
      cursor: { drag: { x: false, y: false }, points: { size: 7 } },
      scales: {
        x: { time: true, range: () => [data.from, data.to] },
        y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.1 : 1] },
      },
      axes: [
        { stroke: style("--muted"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif", size: 30, values: clock(data) },
        axis(data.unit, {}),
      ],
      series: [{}, ...data.series.map((each, place) => line(each, place, data))],
    };
    if (data.series.some((each) => each.right)) options.axes.push(axis(data.unit, { scale: "right", side: 1, grid: { show: false } }));
    drawn.set(element, new uPlot(options, [data.times, ...data.series.map((each) => each.values)], element));
    sizes.observe(element);
  };

  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const chart = drawn.get(target);
      if (chart && Math.abs(chart.width - target.clientWidth) > 1) chart.setSize({ width: Math.max(200, target.clientWidth), height: HEIGHT });
    }
  });
  const drawAll = (root) => root.querySelectorAll("[data-chart]").forEach(draw);
  const forget = () => {
    for (const [element, chart] of drawn) {
      if (!element.isConnected) {
        chart.destroy();
        sizes.unobserve(element);
        drawn.delete(element);
      }
    }
  };

  document.body.addEventListener("htmx:afterSwap", (event) => {
    forget();
    drawAll(event.detail.target);
  });
  document.body.addEventListener("theme", () => [...drawn.keys()].forEach(draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...drawn.keys()].forEach(draw));
})();
