"use strict";
// Comfort only: [ and ] turn over, s goes to the score.
{
  const actions = {
    "[": () => document.querySelector("[data-previous]")?.click(),
    "]": () => document.querySelector("[data-next]")?.click(),
    s: () => document.querySelector(".settle [name=score]")?.focus(),
  };

  function shortcutsOff() {
    try { return window.localStorage.getItem("shortcuts") === "off"; } catch { return false; }
  }

  document.addEventListener("keydown", (event) => {
    const busy = event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]");
    if (busy || shortcutsOff() || event.target.closest("input, textarea, select") || !actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });
}
