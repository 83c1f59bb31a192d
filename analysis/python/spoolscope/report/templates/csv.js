// Saves what a table shows as CSV: exact numbers where cells have them, else their words.
function csvText(table) {
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells]);
  rows.forEach((cells) => cells.forEach((cell, at) => {
    for (const unit of ["ns", "bytes"]) {
      if (unit in cell.dataset && !heads[at].endsWith(`(${unit})`)) heads[at] += ` (${unit})`;
    }
  }));
  const lines = [heads, ...rows.map((cells) => cells.map(
    (cell) => exact(cell) ?? guarded(cell.textContent.trim())))];
  return lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
}

function exact(cell) {
  return cell.dataset.ns ?? cell.dataset.bytes ?? cell.dataset.n;
}

// A spreadsheet runs what begins like a formula; names come from a machine that is not the reader's.
function guarded(text) {
  return /^[=+\-@\t\r]/.test(text) && text !== "-" ? "'" + text : text;
}

function quoted(text) {
  return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

function saveCsv(button) {
  const table = button.parentElement.querySelector(":scope > .scroll table");
  const label = button.getAttribute("aria-label").replace(/^.*?: /, "");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csvText(table)], { type: "text/csv" }));
  link.download = label.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-|-$/g, "").toLowerCase() + ".csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

for (const button of document.querySelectorAll("button.csv")) button.hidden = false;
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.csv");
  if (button) saveCsv(button);
});
