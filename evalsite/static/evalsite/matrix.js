"use strict";
// Comfort only: arrow keys move between the cells of the matrix; Escape closes the answers beside it. Every cell is a link.
{
  let table, panel, rows;
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  function placeOf(link) {
    const cell = link.closest("td, th");
    return [cell.parentElement.sectionRowIndex, cell.cellIndex];
  }

  // The next cell with trials in this direction.
  function neighbour(link, [down, right]) {
    let [row, column] = placeOf(link);
    do {
      row += down;
      column += right;
    } while (rows[row] && column < rows[row].length && column >= 0 && !rows[row][column]);
    return rows[row] && rows[row][column];
  }

  function edge(link, key) {
    const cells = rows[placeOf(link)[0]].slice(1).filter(Boolean);
    return key === "Home" ? cells[0] : cells[cells.length - 1];
  }

  function isOpen() {
    return panel.childElementCount > 0;
  }

  function close() {
    const link = table.querySelector("td a[aria-current]");
    panel.replaceChildren();
    if (!link) return;
    link.removeAttribute("aria-current");
    link.focus();
  }

  // One stop for the tab key; the arrows do the rest.
  function mark(link) {
    for (const other of table.querySelectorAll("td a[tabindex='0']")) other.tabIndex = -1;
    link.tabIndex = 0;
  }

  function onKey(event) {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const next = steps[event.key] ? neighbour(link, steps[event.key]) : undefined;
    const goal = event.key === "Home" || event.key === "End" ? edge(link, event.key) : next;
    if (!goal) return;
    event.preventDefault();
    event.stopPropagation();
    goal.focus();
    goal.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (isOpen() && goal.closest("td")) goal.click();
  }

  function onClick(event) {
    const link = event.target.closest("td a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (link.hasAttribute("aria-current") && isOpen()) {
      event.preventDefault();
      event.stopPropagation();
      panel.focus();
      return;
    }
    for (const other of table.querySelectorAll("td a[aria-current]")) other.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
  }

  // Also after the page asked again for scores that a worker had yet to compute.
  function start() {
    const found = document.querySelector("[data-matrix]");
    if (!found || found === table) return;
    table = found;
    panel = document.querySelector("#cell-panel");
    rows = Array.from(table.tBodies[0].rows, (row) => Array.from(row.cells, (cell) => cell.querySelector("a")));
    Array.from(table.querySelectorAll("td a")).forEach((link, at) => { link.tabIndex = at ? -1 : 0; });
    table.addEventListener("focusin", (event) => { if (event.target.matches("td a")) mark(event.target); });
    table.addEventListener("keydown", onKey);
    table.addEventListener("click", onClick, true);
    panel.addEventListener("click", (event) => { if (event.target.closest("[data-close-panel]")) close(); });
  }

  document.addEventListener("htmx:afterSettle", start);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && panel && isOpen() && !document.querySelector("dialog[open]")) close();
  });
  start();
}
