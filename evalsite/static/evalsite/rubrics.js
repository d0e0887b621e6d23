"use strict";
// The editor of rubrics: a click on a variable puts it where the cursor was, and what another kind needs is out of sight.
// Comfort only: every field is there without it, and what is wrong is said when it is saved.
{
  const kind = document.querySelector("#id_kind");
  const texts = Array.from(document.querySelectorAll("#id_system, #id_user, #id_messages"));
  const needs = { scale_min: "score", scale_max: "score", criteria: "criteria", labels: "label" };
  let last = document.querySelector("#id_user");

  function fit() {
    for (const list of document.querySelectorAll("[data-variables]")) list.hidden = list.dataset.variables !== kind.value;
    for (const part of document.querySelectorAll("[data-of-kind]")) part.hidden = part.dataset.ofKind !== kind.value;
    for (const [name, needed] of Object.entries(needs)) {
      const row = document.querySelector(`.form-row.field-${name}`);
      if (row) row.hidden = needed !== kind.value;
    }
  }

  function insert(text) {
    last.setRangeText(text, last.selectionStart, last.selectionEnd, "end");
    last.focus();
    last.dispatchEvent(new Event("input", { bubbles: true }));
  }

  if (kind) {
    for (const text of texts) text.addEventListener("focus", () => { last = text; });
    for (const button of document.querySelectorAll("[data-insert]")) button.addEventListener("click", () => insert(button.dataset.insert));
    kind.addEventListener("change", fit);
    fit();
  }
}
