// Says in a line what the bar of a waterfall is that the pointer is on.
for (const tracks of document.querySelectorAll(".tracks")) {
  const readout = tracks.querySelector(".readout");
  readout.hidden = false;
  const show = (event) => {
    const bar = event.target.closest("i[title]");
    if (!bar) return;
    tracks.querySelector("i.chosen")?.classList.remove("chosen");
    bar.classList.add("chosen");
    readout.textContent = bar.title;
  };
  for (const kind of ["pointerover", "click"]) tracks.addEventListener(kind, show);
}
