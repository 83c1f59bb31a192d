"use strict";
// Draws the figures and keeps their text and grid in the colours of the page.
// Names in a report are a mail server's: nothing may offer to send them anywhere.
const config = {
  displaylogo: false,
  displayModeBar: false,
  responsive: true,
  showSendToCloud: false,
  showEditInChartStudio: false,
  plotlyServerURL: "",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendDataToCloud"],
};
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const small = window.matchMedia("(max-width: 860px)");
const phone = window.matchMedia("(max-width: 520px)");

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function themed(layout) {
  const update = {
    "font.color": cssColour("--ink"),
    "hoverlabel.bgcolor": cssColour("--card"),
    "hoverlabel.bordercolor": cssColour("--line"),
    "hoverlabel.font.color": cssColour("--ink"),
    "modebar.color": cssColour("--soft"),
    "modebar.bgcolor": "rgba(0,0,0,0)",
  };
  for (const axis of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
    update[axis + ".gridcolor"] = cssColour("--grid");
    update[axis + ".linecolor"] = cssColour("--line");
  }
  return update;
}

// Traces whose fill depends on the page: heat maps have a scale of two colours, and parts of an
// icicle that are no cause have the colour of paper (the colour PLAIN of its figure).
const plain = "#9aa4af";

function inked(trace) {
  if (trace.meta === "heat" || trace.meta === "mark") {
    const ends = [0, 1].map((end) => [end, cssColour(`--${trace.meta}-${end}`)]);
    return { ...trace, colorscale: ends };
  }
  if (trace.meta !== "icicle") return trace;
  const swapped = (colours, name) =>
    colours.map((colour) => (colour === plain ? cssColour(name) : colour));
  const text = small.matches ? trace.text.map((said) => wrapped(said, 10)) : trace.text;
  return {
    ...trace,
    text,
    marker: { ...trace.marker, colors: swapped(trace.marker.colors, "--chip"),
      line: { width: 1.5, color: cssColour("--card") } },
    textfont: { ...trace.textfont, color: swapped(trace.textfont.color, "--ink") },
  };
}

function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(/ (?!%)/)) {
    const last = lines[lines.length - 1];
    if (last && last.length + 1 + word.length > most) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines.join("<br>");
}

// Labels of narrow panels would be turned, and run through what is below: level ones must be fewer.
function narrow(axis) {
  const title = axis.title?.text && { title: { ...axis.title, text: wrapped(axis.title.text, 16) } };
  const [from, to] = axis.domain ?? [0, 1];
  if (to - from > 0.9) return { ...axis, ...title };
  const every = Math.ceil((axis.tickvals?.length ?? 0) / 2);
  const kept = (list) => list.filter((_, at) => at % every === 0);
  const ticks = every
    ? { tickvals: kept(axis.tickvals), ticktext: kept(axis.ticktext) }
    : { nticks: 3, ticklabeloverflow: "hide past domain" };
  return { ...axis, ...title, ...ticks, tickangle: 0 };
}

// Panels side by side, from left to right and down, as the names of their x axes.
function panelsOf(traces, layout) {
  const drawn = new Set(traces.map((trace) => (trace.xaxis ?? "x").replace("x", "xaxis")));
  return Object.keys(layout).filter((key) => drawn.has(key) && layout[key].domain)
    .sort((a, b) => (Number(a.slice(5)) || 1) - (Number(b.slice(5)) || 1));
}

function columnsOf(layout) {
  const axes = Object.keys(layout).filter((key) => /^xaxis\d*$/.test(key));
  return new Set(axes.map((key) => layout[key].domain?.[0])).size;
}

// On a phone three panels side by side leave no room for labels: two do, with a gap that has one.
const side = 0.39;

const above = 46; // pixels: two lines of a title
const below = 30; // and labels

function inTwoColumns(traces, layout) {
  const panels = panelsOf(traces, layout);
  const [low, high] = layout.yaxis.domain;
  const tall = (high - low) * (layout.height - layout.margin.t - below);
  const step = tall + above + below;
  const whole = step * Math.ceil(panels.length / 2) - above - below;
  const margin = { ...layout.margin, t: above };
  const [titles, update] = [[...(layout.annotations ?? [])], {}];
  panels.forEach((key, at) => {
    const [left, top] = [(at % 2) * (1 - side), 1 - (Math.floor(at / 2) * step) / whole];
    const lowest = at >= panels.length - 2 ? { showticklabels: true } : {};
    const beside = key.replace("x", "y");
    update[key] = { ...layout[key], ...lowest, domain: [left, left + side] };
    update[beside] = { ...layout[beside], domain: [Math.max(0, top - tall / whole), top],
      showticklabels: at % 2 === 0 };
    if (!titles[at]) return;
    const text = wrapped(titles[at].text, 16);
    titles[at] = { ...titles[at], text, x: left + side / 2, y: top };
  });
  return { ...layout, ...update, annotations: titles, margin, height: whole + above + below };
}

// A finger that scrolls a small page is not to brush or zoom.
function laidOut(traces, drawn) {
  if (!small.matches) return drawn;
  const crowded = phone.matches && columnsOf(drawn) > 2;
  const layout = crowded ? inTwoColumns(traces, drawn) : drawn;
  const axes = Object.keys(layout).filter((key) => /^xaxis\d*$/.test(key));
  const update = Object.fromEntries(axes.map((key) => [key, narrow(layout[key])]));
  if (layout.uniformtext) update.uniformtext = { ...layout.uniformtext, minsize: 10 };
  return { ...layout, ...update, dragmode: false };
}

const plots = [];
const waiting = new Map();

function draw(plot, traces, layout) {
  Plotly.newPlot(plot, traces.map(inked), laidOut(traces, layout), config)
    .then(() => Plotly.relayout(plot, themed(layout)))
    .then(() => waiting.get(plot)?.());
  plots.push([plot, traces, layout]);
}

// Calls back once a plot is drawn, which one in folded details is when they are opened.
function whenDrawn(plot, act) {
  waiting.set(plot, act);
}

for (const data of document.querySelectorAll('script[id^="data-"]')) {
  const plot = document.getElementById(data.id.replace("data-", "plot-"));
  const { data: traces, layout } = JSON.parse(data.textContent);
  delete layout.template;
  const folded = plot.closest("details:not([open])");
  if (folded) folded.addEventListener("toggle", () => draw(plot, traces, layout), { once: true });
  else draw(plot, traces, layout);
}
function drawAgain([plot, traces, layout], changed) {
  Plotly.react(plot, traces.map(inked), changed, config)
    .then(() => Plotly.relayout(plot, themed(layout)));
}
dark.addEventListener("change", () => {
  for (const one of plots) drawAgain(one, one[0].layout);
});
// A phone was turned.
phone.addEventListener("change", () => {
  for (const one of plots.filter(([, , layout]) => columnsOf(layout) > 2)) {
    drawAgain(one, laidOut(one[1], one[2]));
  }
});
