"use strict";
// What a page can do without: sorting, filtering, and telling what lies under a pointer.
const value = (row, column) => {
  const cell = row.cells[column], data = cell.querySelector("data");
  return data ? +data.value : cell.textContent.trim();
};
const compare = (a, b) =>
  typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? 1 : -1;
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    while (head.firstChild) button.append(head.firstChild);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      body.append(...[...body.rows].sort((a, b) => sign * compare(value(a, column), value(b, column))));
    });
  });
  if (body.rows.length < 8) continue;
  const filter = document.createElement("input");
  filter.type = "search";
  filter.placeholder = "filter functions";
  filter.setAttribute("aria-label", "filter functions");
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  table.before(filter);
}
for (const timeline of document.querySelectorAll(".timeline")) {
  const rows = [...timeline.parentElement.querySelectorAll("table.slices tbody tr")];
  if (!rows.length) continue;
  const pointer = document.createElement("div"), under = document.createElement("p");
  pointer.className = "pointer";
  under.className = "under";
  pointer.hidden = true;
  timeline.append(pointer);
  timeline.after(under);
  const end = +timeline.dataset.end;
  timeline.addEventListener("pointermove", (event) => {
    const box = timeline.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width, at = share * end;
    const row = rows.find((row) => +row.cells[0].textContent <= at && at <= +row.cells[1].textContent);
    pointer.hidden = !row;
    pointer.style.left = share * 100 + "%";
    if (!row) return void (under.textContent = "");
    const [from, to, phase, delays, rate] = [...row.cells].map((cell) => cell.textContent);
    under.textContent = `${from} to ${to} s, ${phase}: delays ${delays}; ${rate} units/s`;
  });
  timeline.addEventListener("pointerleave", () => {
    pointer.hidden = true;
    under.textContent = "";
  });
}
