"use strict";
// Moves the code of a one-time link from the address into the form. The part after # never reaches the server by itself.
{
  const field = document.querySelector("[data-code]");
  const code = window.location.hash.slice(1);
  if (field && code) {
    field.value = code;
    window.history.replaceState(null, "", window.location.pathname);
  }
  const wrapper = field && field.closest(".field");
  if (field && field.value && !wrapper.querySelector(".errorlist")) wrapper.hidden = true;
}
