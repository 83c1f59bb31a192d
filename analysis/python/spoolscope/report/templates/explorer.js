// A window of a heat map: sums of its bins, which the analysis made, are added up and shown.
const inNs = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

// As spoolscope.analysis.wording.duration does.
function durationText(ns) {
  if (ns === 0) return "0";
  const [scale, unit] = inNs.find(([scale]) => ns >= 0.9995 * scale) ?? inNs.at(-1);
  const value = ns / scale;
  const digits = scale > 1 ? Math.max(0, 2 - Math.floor(Math.log10(Math.max(value, 1) * 1.0005))) : 0;
  return grouped(value.toFixed(digits)) + "\u00a0" + unit;
}

function grouped(text) {
  const [whole, part] = String(text).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part === undefined ? "" : "." + part);
}

function percentText(share) {
  if (share === 0 || share === 1) return 100 * share + "\u00a0%";
  if (100 * share < 0.1) return "< 0.1\u00a0%";
  return (100 * share > 99.9 ? "> 99.9" : (100 * share).toFixed(1)) + "\u00a0%";
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const exactTime = (ns) => element("td", { class: "number", "data-ns": ns }, durationText(ns));
const exactCount = (n) => element("td", { class: "number", "data-n": n }, grouped(n));
const words = (text) => element("td", {}, text);

function causeCell(cause, label) {
  return element("td", {}, element("i", { class: "k-" + cause, "aria-hidden": "true" }), label);
}

// Heads as in Python: ">" before one puts its column to the right.
function tableOf(place, label, heads, rows) {
  const head = heads.map((text) => element(
    "th", { scope: "col", ...(text[0] === ">" && { class: "number" }) }, text.replace(/^>/, "")));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows.map((cells) => element("tr", {}, ...cells))));
  place.replaceChildren(
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table),
    element("button", { type: "button", class: "csv", "aria-label": "Save as CSV: " + label },
      "Save as CSV"));
}

const sum = (values, first, last) => {
  let total = 0;
  for (let at = first; at <= last; at += 1) total += values[at];
  return total;
};

// Return the time of the calls begun in the bins first to last, by process and cause and in all.
function windowSums(data, first, last) {
  const causes = {};
  const processes = data.processes.map((name, at) => {
    const own = {};
    for (const [cause, values] of Object.entries(data.times[at])) {
      const ns = sum(values, first, last);
      if (!ns) continue;
      own[cause] = ns;
      causes[cause] = (causes[cause] ?? 0) + ns;
    }
    return { name, calls: sum(data.calls[at], first, last), causes: own, ns: total(data, own) };
  });
  return { causes, processes, ns: total(data, causes) };
}

function total(data, causes) {
  return Object.entries(causes).reduce(
    (ns, [cause, own]) => ns + (data.apart.includes(cause) ? 0 : own), 0);
}

function mostly(data, causes, ns) {
  const own = Object.entries(causes).filter(([cause]) => !data.apart.includes(cause));
  if (!own.length) return words("-");
  const [cause, most] = own.reduce((a, b) => (b[1] > a[1] ? b : a));
  return causeCell(cause, data.labels[cause] + " " + percentText(most / ns));
}

class Window {
  constructor(panel, data, plot) {
    Object.assign(this, { panel, data, plot });
    this.form = panel.querySelector("form");
    panel.hidden = false;
    const { from, to, worst, all } = this.form.elements;
    for (const input of [from, to]) input.addEventListener("change", () => this.typed());
    worst.addEventListener("click", () => this.show(data.worst, data.worst));
    all.addEventListener("click", () => this.show(0, data.n - 1));
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.typed(); });
    this.show(0, data.n - 1);
  }

  typed() {
    const { from, to } = this.form.elements;
    this.between(Number(from.value), Number(to.value));
  }

  // Shows the whole bins that these seconds lie in.
  between(from, to) {
    const bin = this.data.bin_ns / 1e9, most = this.data.n - 1;
    const first = Math.min(Math.max(Math.floor(from / bin + 1e-9), 0), most);
    const last = Math.min(Math.max(Math.ceil(to / bin - 1e-9) - 1, first), most);
    this.show(first, last);
  }

  show(first, last) {
    const { data, form, panel } = this;
    const from = this.seconds(first), to = this.seconds(last + 1);
    form.elements.from.value = from;
    form.elements.to.value = to;
    const found = windowSums(data, first, last);
    this.say(first, last, found);
    const whole = last === data.n - 1 ? "" : to;
    panel.querySelector(".next code").textContent =
      first === 0 && whole === "" ? `spoolscope explain ${data.trace}`
        : `spoolscope explain ${data.trace} --slice ${from}..${whole}`;
    this.tables(first, last, found);
    this.mark(first, last, from, to);
  }

  // Bins are 1, 2 or 5 times a power of ten: decimals tell them exactly.
  seconds(bins) {
    return String(Number((bins * (this.data.bin_ns / 1e6) / 1e3).toFixed(6)));
  }

  say(first, last, found) {
    const calls = found.processes.reduce((n, process) => n + process.calls, 0);
    const marks = Object.entries(this.data.marks).map(([name, [begun, covered, longest]]) => {
      const share = sum(covered, first, last) / ((last - first + 1) * this.data.bin_ns);
      const most = Math.max(...longest.slice(first, last + 1));
      return ` ${name}: ${grouped(sum(begun, first, last))} begun, under way for `
        + `${percentText(Math.min(share, 1))} of the time` + (most ? `, the longest ${durationText(most)}.` : ".");
    });
    this.panel.querySelector(".said").textContent =
      `${this.seconds(first)} s to ${this.seconds(last + 1)} s: ${grouped(calls)} calls took `
      + `${durationText(found.ns)}.` + marks.join("");
  }

  tables(first, last, found) {
    const { data, panel } = this;
    const label = panel.id.replace("window-", "") + ": ";
    const apart = ([cause]) => data.apart.includes(cause);
    const causes = Object.entries(found.causes).sort((a, b) => apart(a) - apart(b) || b[1] - a[1]);
    tableOf(panel.querySelector(".causes-of"), label + "causes", ["cause", ">time", ">share"],
      causes.map(([cause, ns]) => [causeCell(cause, data.labels[cause]), exactTime(ns),
        element("td", { class: "number" }, apart([cause]) ? "not counted" : percentText(ns / found.ns))]));
    const processes = found.processes.filter((one) => one.calls).sort((a, b) => b.ns - a.ns);
    tableOf(panel.querySelector(".processes-of"), label + "processes",
      ["process", ">calls", ">time", "mostly"], processes.map((one) => [words(one.name),
        exactCount(one.calls), exactTime(one.ns), mostly(data, one.causes, one.ns)]));
    const slow = data.slowest.filter(([bin]) => bin >= first && bin <= last)
      .sort((a, b) => b[6] - a[6] || a[1] - b[1]).slice(0, data.shown);
    tableOf(panel.querySelector(".slowest-of"), label + "slowest calls",
      [">at", "process", "call", "path", ">took", "mostly"], slow.map((call) => this.slowRow(call)));
  }

  slowRow([, at, comm, pid, call, path, ns, cause, part]) {
    const { words: known, labels } = this.data;
    return [element("td", { class: "number", "data-ns": at }, (at / 1e9).toFixed(3) + "\u00a0s"),
      words(`${known[comm]} ${pid}`), words(known[call]),
      element("td", { class: "long" }, path < 0 ? "-" : known[path]), exactTime(ns),
      causeCell(known[cause], labels[known[cause]] + " " + percentText(ns ? part / ns : 0))];
  }

  // Marks the window in the heat map; the plot is drawn only once it can be seen.
  mark(first, last, from, to) {
    this.window = first === 0 && last === this.data.n - 1 ? [] : [{
      type: "rect", xref: "x", yref: "paper", x0: from, x1: to, y0: 0, y1: 1, layer: "above",
      line: { width: 2, color: cssColour("--accent") }, fillcolor: "rgba(127,140,155,.12)",
    }];
    if (this.plot.classList.contains("js-plotly-plot")) {
      Plotly.relayout(this.plot, { shapes: this.window, selections: [] });
    }
  }

  listen() {
    this.plot.on("plotly_selected", (event) => {
      if (event?.range?.x) this.between(...event.range.x);
    });
    this.plot.on("plotly_deselect", () => this.show(0, this.data.n - 1));
    if (this.window.length) Plotly.relayout(this.plot, { shapes: this.window });
  }
}

for (const script of document.querySelectorAll("script.window-data")) {
  const key = script.id.replace("sums-", "");
  const plot = document.getElementById("plot-" + key);
  const shown = new Window(document.getElementById("window-" + key), JSON.parse(script.textContent), plot);
  whenDrawn(plot, () => shown.listen());
}
