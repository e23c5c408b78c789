"use strict";

const read = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "null");
const dark = matchMedia("(prefers-color-scheme: dark)");
const HOVERED = 120; // points of a curve that show their figures under the pointer

// ---- charts

const PALETTES = {
  light: {
    two: ["#1d5fd1", "#7a818c"],
    many: ["#1d5fd1", "#b3541e", "#14806a", "#8a3fa0", "#6b6f00", "#c2305e", "#4a5568", "#0b7fab"],
  },
  dark: {
    two: ["#7fb0ff", "#949ba6"],
    many: ["#7fb0ff", "#f0a070", "#58c9a9", "#cf95e6", "#c9cc5a", "#f58bab", "#b4bcc8", "#66cdf0"],
  },
};

function legendOf(names, width) {
  const free = width - 60; // beside the vertical axis
  const longest = 24 + 7 * Math.max(...names.map((name) => name.length)); // pixels, roughly
  const columns = Math.max(1, Math.min(4, Math.floor(free / longest)));
  return { columns, labelLimit: Math.max(140, free / columns - 24) };
}

function theme(palette, legend) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const [ink, faint, line] = [color("--ink"), color("--faint"), color("--line")];
  const font = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  return {
    background: "transparent",
    font,
    view: { stroke: null },
    range: { category: PALETTES[dark.matches ? "dark" : "light"][palette] },
    line: { strokeWidth: 1.75 },
    axis: {
      labelColor: faint, titleColor: faint, titleFontWeight: "normal", gridColor: line, domain: false, ticks: false,
      labelFontSize: 11, titleFontSize: 11, labelPadding: 6, titlePadding: 8, tickCount: 5, labelOverlap: true,
    },
    axisX: { grid: false, domain: true, domainColor: line },
    legend: { orient: "top", labelColor: ink, labelFontSize: 12, symbolType: "circle", symbolStrokeWidth: 2, offset: 8,
      ...legend },
    style: {
      baseline: { stroke: null },
    },
    rule: { color: faint, strokeDash: [5, 4], strokeWidth: 1.25 },
    text: { color: faint, fontSize: 11 },
  };
}

function rows(series) {
  return series.flatMap(({ name, x, y }) => {
    const every = Math.max(1, Math.ceil(x.length / HOVERED));
    return x.map((value, i) => ({ s: name, x: value, y: y[i], h: i % every === 0 || i === x.length - 1 }));
  });
}

async function draw(id, { spec, series, palette, label }) {
  const legend = legendOf(series.map(({ name }) => name), document.getElementById(id).clientWidth);
  const whole = { ...structuredClone(spec), description: label, config: theme(palette, legend) };
  whole.data = { name: "points", values: rows(series) };
  whole.autosize = { type: "fit-x", contains: "padding" };
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false,
    tooltip: { disableDefaultStyle: true } };
  try {
    await vegaEmbed(`#${id}`, whole, options);
    document.querySelector(`#${id} svg`)?.setAttribute("aria-hidden", "true"); // its element has the description
  } catch (error) {
    document.getElementById(id).textContent = `This chart can't be drawn (${error.message}); its figures are below.`;
  }
}

async function drawAll() {
  for (const [id, chart] of Object.entries(read("charts") ?? {})) await draw(id, chart);
  document.documentElement.dataset.drawn = "yes";
}

dark.addEventListener("change", drawAll);

// ---- attention

function attention() {
  const found = read("attention-data");
  if (!found) return;
  const { tokens, layers, heads, weights } = found;
  const bytes = Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0));
  const count = tokens.length;
  const cells = [...document.querySelectorAll("#attention-table tbody td")];
  const [layer, head] = ["attention-layer", "attention-head"].map((id) => document.getElementById(id));
  const at = (l, h, i) => bytes[(l * heads + h) * count * count + i] / 255;
  const show = () => {
    const l = Number(layer.value);
    cells.forEach((cell, i) => {
      let weight = 0;
      if (head.value === "mean") for (let h = 0; h < heads; h++) weight += at(l, h, i) / heads;
      else weight = at(l, Number(head.value), i);
      cell.style.setProperty("--weight", Math.sqrt(weight).toFixed(3)); // or most cells would look alike
      cell.textContent = weight >= 0.095 ? Math.round(100 * weight) : "";
      cell.title = `${tokens[Math.floor(i / count)]} → ${tokens[i % count]}: ${(100 * weight).toFixed(1)}%`;
    });
  };
  layer.addEventListener("change", show);
  head.addEventListener("change", show);
  show();
}

attention();
drawAll();
