"use strict";
// Looking through items with the keyboard: arrows move, x asks for a note and excludes (or takes in again).
// Comfort only: each item's own page has the same forms.
{
  const find = (selector, within = document) => within.querySelector(selector);
  const dialog = find("#note-dialog");
  const form = dialog && find("form", dialog);
  let asked = null;

  const links = () => Array.from(document.querySelectorAll("#items a[data-item]"));
  const here = () => links().find((link) => link.closest("li, tr").contains(document.activeElement));

  function ask(link) {
    const excluded = link.dataset.excluded === "yes";
    const key = link.textContent.trim();
    asked = { at: links().indexOf(link), id: link.id, said: excluded ? `${key} is active again` : `${key} is excluded` };
    form.action = `${form.dataset.itemsUrl}${link.dataset.item}/act/${excluded ? "include" : "exclude"}/`;
    find("#note-title").textContent = excluded ? `Include ${key} again?` : `Exclude ${key}?`;
    find("[data-note-submit]").textContent = excluded ? "Include" : "Exclude";
    find("[data-note-optional]").hidden = !excluded;
    const note = find("#note-reason");
    note.required = !excluded;
    note.value = "";
    dialog.showModal();
    note.focus();
  }

  // Up and down go to the card that is nearest in the next line of the gallery.
  function across(all, from, step) {
    const place = (link) => link.closest("li, tr").getBoundingClientRect();
    const start = place(from);
    const other = all.filter((link) => (place(link).top - start.top) * step > 1);
    const row = other.length ? place(step > 0 ? other[0] : other[other.length - 1]).top : 0;
    const near = (link) => Math.abs(place(link).left - start.left);
    return other.filter((link) => Math.abs(place(link).top - row) < 1).sort((a, b) => near(a) - near(b))[0];
  }

  function move(key) {
    const all = links();
    const from = here();
    if (!from) return false;
    const at = all.indexOf(from);
    const target = {
      ArrowRight: () => all[at + 1],
      ArrowLeft: () => all[at - 1],
      ArrowDown: () => across(all, from, 1),
      ArrowUp: () => across(all, from, -1),
    }[key]();
    if (!target) return false;
    target.focus();
    target.scrollIntoView({ block: "nearest" });
    return true;
  }

  function turn(step) {
    const link = find(`a[data-turn][rel=${step}]`);
    if (link) link.click();
    return Boolean(link);
  }

  function exclude() {
    const link = here();
    if (dialog && link) ask(link);
    const note = find("[data-note-field]");
    if (note) note.focus();
    return Boolean((dialog && link) || note);
  }

  const keys = {
    x: exclude,
    ArrowRight: () => (find("[data-turn]") ? turn("next") : move("ArrowRight")),
    ArrowLeft: () => (find("[data-turn]") ? turn("prev") : move("ArrowLeft")),
    ArrowDown: () => move("ArrowDown"),
    ArrowUp: () => move("ArrowUp"),
    j: () => turn("next"),
    k: () => turn("prev"),
  };

  function singleKeysAreOff() {
    try { return window.localStorage.getItem("shortcuts") === "off"; } catch { return false; }
  }

  document.addEventListener("keydown", (event) => {
    const action = keys[event.key];
    const busy = event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || find("dialog[open]")
      || event.target.closest("input, textarea, select, [contenteditable]");
    if (!action || busy || singleKeysAreOff()) return;
    if (action()) event.preventDefault();
  });

  if (dialog) {
    document.addEventListener("click", (event) => {
      const tool = event.target.closest("[data-note-for]");
      if (tool) {
        event.preventDefault();
        ask(find(`#${tool.dataset.noteFor}`));
      }
    });
    find("[data-note-back]").addEventListener("click", () => dialog.close());
    form.addEventListener("htmx:configRequest", (event) => { event.detail.path = form.action; });
    // After the swap the same item has the focus, or the one that took its place.
    document.addEventListener("htmx:afterSettle", () => {
      if (!asked) return;
      const { id, at, said } = asked;
      asked = null;
      dialog.close();
      const all = links();
      const link = find(`#${id}`) || all[Math.min(at, all.length - 1)];
      if (link) link.focus();
      const refused = find("#messages [role=alert]");
      document.dispatchEvent(new CustomEvent("toast", { detail: refused ? { text: refused.textContent.trim(), tone: "bad" } : { text: said } }));
    });
  }
}

// The name as it will be stored, while it is typed. The server derives it in the same way (`SlugField`).
{
  const trimmed = (text) => text.replace(/^[-_]+|[-_]+$/g, "");
  const ascii = (text) => Array.from(text.normalize("NFKD")).filter((letter) => letter < "\u0080").join("");
  const isSlug = (text) => /^[a-z0-9][a-z0-9_-]{0,79}$/.test(text);

  function slugOf(typed) {
    if (isSlug(typed)) return typed;
    const words = ascii(typed).toLowerCase().replace(/[^a-z0-9_\s-]/g, "").replace(/[-\s]+/g, "-");
    return trimmed(trimmed(words).slice(0, 80));
  }

  function wordsFor(typed) {
    const slug = slugOf(typed);
    if (!typed || slug === typed) return "";
    return slug ? `Stored as ${slug}` : "Use at least one letter from a to z, or a digit";
  }

  for (const field of document.querySelectorAll("input[data-slug]")) {
    const shown = document.createElement("output");
    shown.className = "help slug-shown";
    shown.htmlFor = field.id;
    field.insertAdjacentElement("afterend", shown);
    const show = () => { shown.textContent = wordsFor(field.value.trim()); };
    field.addEventListener("input", show);
    if (field.getAttribute("aria-invalid") !== "true") show();  // The error beside it says the same.
  }
}
