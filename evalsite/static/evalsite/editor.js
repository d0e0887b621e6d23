"use strict";
// Comfort only: a chip writes its variable where the cursor was, fields of other kinds are hidden, and the editor opens
// in a dialog. Without this file every field is shown, and the editor is a page with a way back.
{
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  let last = null; // The template that had the focus last.

  function fit() {
    const form = find("#editor");
    const kind = form && find("[name=kind]", form);
    if (kind) for (const part of all("[data-of-kind]", form)) part.hidden = part.dataset.ofKind !== kind.value;
    const rubric = form && find("[name=rubric]", form);
    const written = form && find("[data-new-rubric]", form);
    if (rubric && written) written.hidden = rubric.value !== "";
  }

  function insert(chip) {
    const form = chip.closest("form");
    const field = last && form.contains(last) ? last : find("textarea[name=user][data-template], [data-template]", form);
    if (!field) return;
    const fold = field.closest("details");
    if (fold) fold.open = true;
    field.setRangeText(chip.dataset.insert, field.selectionStart, field.selectionEnd, "end");
    field.focus();
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // A closed part says which of its boxes are ticked.
  function nameTicked() {
    for (const line of all("[data-ticked-in]")) {
      const part = document.getElementById(line.dataset.tickedIn);
      const ticked = part ? all("[type=checkbox]:checked", part) : [];
      const names = ticked.map((box) => box.labels[0].innerText.trim().split("\n")[0]);
      line.textContent = names.join(", ") || "none";
    }
  }

  document.addEventListener("focusin", (event) => {
    if (event.target.matches("[data-template]")) last = event.target;
  });
  document.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-insert]");
    if (chip) insert(chip);
    const close = event.target.closest("[data-close-dialog]");
    if (close) close.closest("dialog").close();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[name=kind], [name=rubric]")) fit();
    nameTicked();
  });

  // The editor in a dialog.
  document.addEventListener("htmx:afterSwap", ({ detail }) => {
    fit();
    nameTicked();
    const dialog = detail.target.id === "editor-content" && detail.target.closest("dialog");
    if (!dialog || dialog.open) return;
    dialog.addEventListener("close", () => detail.target.replaceChildren(), { once: true });
    dialog.showModal();
  });
  // A saved definition: the dialog closes, and the choices of its field are fetched again with it ticked.
  document.addEventListener("made", ({ detail }) => {
    const dialog = find("#editor-dialog");
    if (dialog) dialog.close();
    document.dispatchEvent(new CustomEvent("toast", { detail: { text: detail.text, tone: "good" } }));
    const choices = find(`#choices-${detail.field}`);
    if (!choices) return;
    const made = document.createElement("input");
    Object.assign(made, { type: "hidden", name: detail.field, value: detail.value });
    made.dataset.made = "";
    choices.append(made);
    choices.dispatchEvent(new Event("choose"));
  });
  fit();
  nameTicked();
}
