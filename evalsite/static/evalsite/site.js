"use strict";
// Comfort only: every page works without this file. Behaviour hangs on data attributes; nothing is written as HTML.
{
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));

  function remember(key, value) {
    try { window.localStorage.setItem(key, value); } catch { /* Storage may be forbidden. */ }
  }

  function recall(key) {
    try { return window.localStorage.getItem(key); } catch { return null; }
  }

  // Theme: automatic, light, dark, and round again.
  const nextTheme = { auto: "light", light: "dark", dark: "auto" };
  const themeWords = { auto: "as the system", light: "light", dark: "dark" };

  function showTheme() {
    const mode = document.documentElement.dataset.themeMode || "auto";
    for (const button of all("[data-theme-toggle]")) {
      button.hidden = false;
      button.title = `Theme: ${themeWords[mode]}. Switch to ${themeWords[nextTheme[mode]]}`;
      button.setAttribute("aria-label", button.title);
      for (const face of all("[data-theme-face]", button)) face.hidden = face.dataset.themeFace !== mode;
    }
  }

  function switchTheme() {
    remember("theme", nextTheme[document.documentElement.dataset.themeMode || "auto"]);
    document.dispatchEvent(new Event("evalsite:theme"));
    showTheme();
  }

  // Toasts: text only. A view sends the header HX-Trigger: {"toast": {"text": "...", "tone": "good"}}.
  function toast(text, tone = "good") {
    const region = find("#toasts");
    const template = find("#toast-template");
    if (!region || !template || !text) return;
    const box = template.content.firstElementChild.cloneNode(true);
    box.classList.add(`tone-${["good", "bad", "hold", "live", "neutral"].includes(tone) ? tone : "neutral"}`);
    find(".notice-body", box).textContent = text;
    region.append(box);
    if (tone !== "bad") window.setTimeout(() => box.remove(), 6000);
  }

  // Confirmation: <form data-confirm="Question?" data-confirm-detail="..." data-confirm-label="Cancel the run">.
  function ask(form, submitter) {
    const dialog = find("#confirm-dialog");
    const words = { ...form.dataset, ...(submitter ? submitter.dataset : {}) };
    find("[data-slot=title]", dialog).textContent = words.confirm;
    find("[data-slot=detail]", dialog).textContent = words.confirmDetail || "";
    const yes = find("[value=yes]", dialog);
    yes.textContent = words.confirmLabel || "Continue";
    yes.classList.toggle("btn-danger", words.confirmTone === "danger");
    yes.classList.toggle("btn-primary", words.confirmTone !== "danger");
    dialog.returnValue = "";
    dialog.onclose = () => {
      if (dialog.returnValue !== "yes") return;
      form.dataset.confirmed = "yes";
      form.requestSubmit(submitter);
    };
    dialog.showModal();
  }

  function onSubmit(event) {
    const form = event.target;
    const question = form.dataset.confirm || (event.submitter && event.submitter.dataset.confirm);
    if (question && form.dataset.confirmed !== "yes") {
      event.preventDefault();
      event.stopImmediatePropagation();
      ask(form, event.submitter);
      return;
    }
    delete form.dataset.confirmed;
  }

  // What is not filtered stays out of the address.
  function dropEmpty(event) {
    if (event.target.method !== "get") return;
    for (const [name, value] of Array.from(event.formData.entries())) {
      if (value === "") event.formData.delete(name);
    }
  }

  // On a phone, a strip of tabs starts at the open tab.
  for (const tab of all(":is(.tabs, .subtabs, .mainnav) > [aria-current]")) {
    const strip = tab.parentElement.getBoundingClientRect(), box = tab.getBoundingClientRect();
    tab.parentElement.scrollLeft += box.left - strip.left - (strip.width - box.width) / 2;
  }

  // Keyboard
  const typing = (target) => target.closest("input, textarea, select, [contenteditable]");
  const rowLinks = () => all("[data-rows] tbody tr, [data-rows] > li").map((row) => find("a[href]", row)).filter(Boolean);

  function move(step) {
    const links = rowLinks();
    if (!links.length) return;
    const here = links.findIndex((link) => link.closest("tr, li").contains(document.activeElement));
    const link = links[Math.min(links.length - 1, Math.max(0, here < 0 ? 0 : here + step))];
    link.focus();
    link.scrollIntoView({ block: "nearest" });
  }

  function focusFilter() {
    const field = find("[data-filter-focus], .filters input[type=search], .filters input[type=text], .filters select");
    if (!field) return;
    const fold = field.closest("details");
    if (fold && !field.checkVisibility()) fold.open = true;
    field.focus();
    if (field.select) field.select();
  }

  const keys = {
    "?": () => find("#keyboard-dialog").showModal(),
    "/": focusFilter,
    j: () => move(1),
    k: () => move(-1),
  };

  // A link that names its keys: <a href="..." data-keys="j ArrowRight">.
  const linkOf = (key) => all("a[data-keys]").find((link) => link.dataset.keys.split(" ").includes(key));

  // Arrow keys belong to what scrolls sideways while it has the focus.
  const scrolls = (event) => event.key.startsWith("Arrow")
    && (event.shiftKey || (event.target !== document.body && event.target.scrollWidth > event.target.clientWidth));

  // Search: Ctrl-K opens the dialog; the arrow keys move from the field through what was found.
  function openSearch(event) {
    const dialog = find("#search-dialog");
    if (!dialog) return;
    event.preventDefault();
    if (!dialog.open) dialog.showModal();
    find("input", dialog).select();
  }

  function moveInSearch(event) {
    const dialog = find("#search-dialog[open]");
    if (!dialog || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    const stops = [find("input", dialog), ...all("#search-found a", dialog)];
    const here = stops.indexOf(document.activeElement);
    stops[Math.min(stops.length - 1, Math.max(0, here + (event.key === "ArrowDown" ? 1 : -1)))].focus();
    event.preventDefault();
  }

  // Times: the reader's own zone, with UTC as the title that the page came with.
  function showLocalTimes(root = document) {
    const pad = (number) => String(number).padStart(2, "0");
    for (const time of all("time[datetime]", root)) {
      const moment = new Date(time.dateTime);
      const [, day, clock] = time.textContent.match(/^\s*(\d{4}-\d\d-\d\d)(?: \d\d:\d\d(:\d\d)?)?\s*$/) || [];
      if (!day || Number.isNaN(moment.getTime()) || "local" in time.dataset) continue;
      const hasClock = time.textContent.includes(":");
      const date = `${moment.getFullYear()}-${pad(moment.getMonth() + 1)}-${pad(moment.getDate())}`;
      const hour = `${pad(moment.getHours())}:${pad(moment.getMinutes())}`;
      time.textContent = hasClock ? `${date} ${hour}${clock ? `:${pad(moment.getSeconds())}` : ""}` : date;
      time.dataset.local = "";
    }
    const zone = find("[data-zone]");
    if (zone) zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || zone.textContent;
  }

  function onKey(event) {
    if (event.key === "Escape") return closeMenus(null);
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !event.shiftKey) return openSearch(event);
    moveInSearch(event);
    const link = scrolls(event) ? undefined : linkOf(event.key);
    const action = link ? () => link.click() : keys[event.key];
    const busy = event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || find("dialog[open]");
    if (!action || busy || recall("shortcuts") === "off") return undefined;
    event.preventDefault();
    return action();
  }

  function closeMenus(except) {
    for (const menu of all("details.menu[open], details.action[open]")) {
      if (menu === except || menu.contains(except)) continue;
      if (menu.contains(document.activeElement)) find("summary", menu).focus();
      menu.open = false;
    }
  }

  // A control character is shown as a mark; what is copied is the character itself.
  function exactText(source) {
    const whole = source.cloneNode(true);
    for (const mark of all(".control-mark", whole)) mark.replaceWith(String.fromCodePoint(Number(mark.dataset.code)));
    return whole.textContent;
  }

  async function copy(button) {
    const source = find(button.dataset.copy);
    if (!source) return;
    try {
      await navigator.clipboard.writeText(exactText(source));
      toast("Copied");
    } catch {
      toast("The browser did not allow copying", "bad");
    }
  }

  function onClick(event) {
    const target = event.target.closest("[data-theme-toggle], [data-dismiss], [data-open-dialog], [data-copy], [data-search]");
    closeMenus(event.target.closest("details.menu, details.action"));
    if (!target) return;
    if ("search" in target.dataset) openSearch(event);
    if ("themeToggle" in target.dataset) switchTheme();
    if ("dismiss" in target.dataset) target.closest(".notice").remove();
    if (target.dataset.openDialog) find(target.dataset.openDialog).showModal();
    if (target.dataset.copy) copy(target);
  }

  // A head can stick to the window only where the table need not scroll sideways.
  function fitTables(root = document) {
    for (const wrap of all(".table-wrap", root)) {
      wrap.classList.remove("fits");
      const fits = wrap.scrollWidth <= wrap.clientWidth;
      wrap.classList.toggle("fits", fits);
      if (fits) wrap.removeAttribute("tabindex"); else wrap.tabIndex = 0;
    }
  }

  // <form data-keep> keeps what is typed in this tab until it is saved, so that an expired session loses nothing.
  const keptName = (field) => `kept:${window.location.pathname}:${field.form.dataset.keep}:${field.name}`;

  function keepTyped(field) {
    try { window.sessionStorage.setItem(keptName(field), field.value); } catch { /* Storage may be forbidden. */ }
  }

  function restoreTyped() {
    try {
      for (const field of all("form[data-keep] textarea, form[data-keep] input[type=text]")) {
        const kept = window.sessionStorage.getItem(keptName(field));
        if (kept && field.value === field.defaultValue) field.value = kept;
      }
    } catch { /* Storage may be forbidden. */ }
  }

  function forgetTyped() {
    try {
      const names = Object.keys(window.sessionStorage).filter((name) => name.startsWith("kept:"));
      for (const name of names) window.sessionStorage.removeItem(name);
    } catch { /* Storage may be forbidden. */ }
  }

  function openFilters() {
    if (CSS.supports("selector(::details-content)")) return;
    const wide = window.matchMedia("(min-width: 48rem)");
    if (wide.matches) for (const bar of all("details:is(.filters, .phone-fold)")) bar.open = true;
  }

  // Without the numbers in its summary, because a newer version counts anew.
  function nameOfFold(fold) {
    return `${fold.parentElement.closest("[id]")?.id}: ${find("summary", fold).textContent.replace(/\d/g, "")}`;
  }

  function nameOfStop(stop) {
    if (stop.localName === "summary") return nameOfFold(stop.parentElement);
    const label = stop.name || stop.getAttribute("aria-label") || stop.textContent.replace(/\d/g, "").trim();
    return `${stop.localName} ${stop.getAttribute("href") || `${stop.form?.getAttribute("action")} ${label}`}`;
  }

  function onHtmxTrouble(event) {
    const status = event.detail.xhr ? event.detail.xhr.status : 0;
    toast(status ? `The server refused this (${status}).` : "The server could not be reached.", "bad");
  }

  function start() {
    showTheme();
    showLocalTimes();
    openFilters();
    fitTables();
    if (window.location.hash.startsWith("#annotation-")) forgetTyped();
    restoreTyped();
    const shortcuts = find("#shortcuts-on");
    if (shortcuts) {
      shortcuts.checked = recall("shortcuts") !== "off";
      shortcuts.addEventListener("change", () => remember("shortcuts", shortcuts.checked ? "on" : "off"));
    }
  }

  document.addEventListener("click", onClick);
  document.addEventListener("keydown", onKey);
  document.addEventListener("submit", onSubmit, true);
  document.addEventListener("formdata", dropEmpty, true);
  document.addEventListener("change", (event) => {
    const form = event.target.form;
    if (form && "autosubmit" in form.dataset && !event.target.matches("input[type=text], input[type=search]")) form.requestSubmit();
  });
  document.addEventListener("input", (event) => {
    if (event.target.form && "keep" in event.target.form.dataset) keepTyped(event.target);
  });
  document.addEventListener("htmx:afterSwap", () => { if (find("[data-saved]")) forgetTyped(); });
  document.addEventListener("toast", (event) => toast(event.detail.text, event.detail.tone));
  // Boxes that a person ticked after htmx had asked for these choices stay ticked.
  let ticked = [];
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    // A hidden field names a row that was made in a dialog.
    if (detail.target.matches("[data-keep-ticks]")) ticked = all(":checked, [data-made]", detail.target).map((box) => box.value);
  });
  document.addEventListener("htmx:afterSwap", ({ detail }) => {
    if (!detail.target.matches("[data-keep-ticks]")) return;
    for (const box of all("[type=checkbox]", detail.target)) {
      box.checked = ticked.includes(box.value);
      const fold = box.closest("details");
      if (fold && box.checked) fold.open = true;
    }
  });
  // A fold keeps its state, and the focus stays, when a live part of a page is replaced by its newer version.
  const STOPS = "a[href], button, summary, input, select, textarea, [tabindex='0']";
  const folds = new Map();
  let focused; // htmx itself finds an element that has an id.
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.target !== detail.requestConfig.elt) return;
    for (const fold of all("details", detail.target)) folds.set(nameOfFold(fold), fold.open);
    const stop = document.activeElement;
    if (stop.id || !stop.matches(STOPS) || !detail.target.contains(stop)) return;
    const name = nameOfStop(stop);
    const place = all(STOPS, detail.target).filter((other) => nameOfStop(other) === name).indexOf(stop);
    focused = { part: detail.target.id, name, place };
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const fold of folds.size ? all("details") : []) {
      const name = nameOfFold(fold);
      if (folds.has(name)) fold.open = folds.get(name);
    }
    folds.clear();
    if (focused) {
      const stops = all(STOPS, document.getElementById(focused.part) || document);
      stops.filter((stop) => nameOfStop(stop) === focused.name)[focused.place]?.focus({ preventScroll: true });
    }
    focused = undefined;
  });
  document.addEventListener("htmx:responseError", onHtmxTrouble);
  document.addEventListener("htmx:sendError", onHtmxTrouble);
  document.addEventListener("htmx:afterSettle", ({ target }) => {
    fitTables(target.parentElement || document);
    showLocalTimes(target.parentElement || document);
  });
  window.addEventListener("resize", () => fitTables());
  start();
}
