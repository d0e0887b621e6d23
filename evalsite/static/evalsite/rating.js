"use strict";
// Comfort only: the page works by its buttons. Digits, p and f, or arrows and n rate, Backspace or u goes back, one rating a page.
{
  const form = document.querySelector("[data-rating]");
  const undo = document.querySelector("[data-rating-undo] button");
  let sent = false;

  function shortcutsOff() {
    try { return window.localStorage.getItem("shortcuts") === "off"; } catch { return false; }
  }

  function buttonFor(key) {
    if (key === "Backspace" || key === "u") return undo;
    const letter = key.length === 1 ? key.toLowerCase() : key; // As with the capitals locked.
    return form.querySelector(`[data-key="${CSS.escape(letter)}"]`);
  }

  function onKey(event) {
    const busy = event.repeat || event.ctrlKey || event.metaKey || event.altKey;
    if (busy || shortcutsOff() || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, textarea, select")) return;
    if (event.key.startsWith("Arrow") && event.target.closest(".rating-part")) return; // There they scroll.
    const button = buttonFor(event.key);
    if (!button || button.disabled) return;
    event.preventDefault();
    button.click();
  }

  // A second tap before the next page comes would otherwise rate what was not looked at.
  function onSubmit(event) {
    if (sent) { event.preventDefault(); return; }
    sent = true;
    if (event.submitter) event.submitter.classList.add("is-chosen");
  }

  if (form) {
    document.addEventListener("keydown", onKey);
    document.addEventListener("submit", onSubmit);
    window.addEventListener("pageshow", () => { sent = false; });
  }
}
