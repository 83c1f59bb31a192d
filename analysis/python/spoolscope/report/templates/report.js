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

function themed(layout) {
  const css = getComputedStyle(document.documentElement);
  const colour = (name) => css.getPropertyValue(name).trim();
  const update = {
    "font.color": colour("--ink"),
    "hoverlabel.bgcolor": colour("--card"),
    "hoverlabel.bordercolor": colour("--line"),
    "hoverlabel.font.color": colour("--ink"),
    "modebar.color": colour("--soft"),
    "modebar.bgcolor": "rgba(0,0,0,0)",
  };
  for (const axis of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
    update[axis + ".gridcolor"] = colour("--grid");
    update[axis + ".linecolor"] = colour("--line");
  }
  return update;
}

const plots = [];
for (const data of document.querySelectorAll('script[type="application/json"]')) {
  const plot = document.getElementById(data.id.replace("data-", "plot-"));
  const { data: traces, layout } = JSON.parse(data.textContent);
  delete layout.template;
  Plotly.newPlot(plot, traces, layout, config).then(() => Plotly.relayout(plot, themed(layout)));
  plots.push([plot, layout]);
}
dark.addEventListener("change", () => {
  for (const [plot, layout] of plots) Plotly.relayout(plot, themed(layout));
});
