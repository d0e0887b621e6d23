"use strict";
// Comfort only: a chosen or dropped file is read at once, models are filtered.
{
  const form = document.querySelector("#data-form");
  const drop = document.querySelector("[data-drop]");
  const file = form && form.querySelector("input[type=file]");

  function read() {
    if (file.files.length) form.requestSubmit(form.querySelector("[value=read]"));
  }

  if (file) file.addEventListener("change", read);
  if (drop) {
    for (const kind of ["dragover", "dragleave", "drop"]) {
      drop.addEventListener(kind, (event) => {
        event.preventDefault();
        drop.classList.toggle("is-over", kind === "dragover");
        if (kind !== "drop" || !event.dataTransfer.files.length) return;
        file.files = event.dataTransfer.files;
        read();
      });
    }
  }

  document.addEventListener("input", (event) => {
    if (!event.target.matches("[data-filter-models]")) return;
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.querySelectorAll("[data-model]")) {
      row.hidden = !words.every((word) => row.dataset.model.toLowerCase().includes(word));
    }
  });
}
