"use strict";
// Loaded before anything is painted: the reader's theme and zone. The admin keeps its theme under the same name.
{
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      const mode = window.localStorage.getItem("theme");
      return mode === "light" || mode === "dark" ? mode : "auto";
    } catch {
      return "auto"; // Storage may be forbidden.
    }
  }

  function apply() {
    const mode = stored();
    root.dataset.themeMode = mode;
    root.dataset.theme = mode === "auto" ? (dark.matches ? "dark" : "light") : mode;
  }

  function tellZone() {
    const zone = encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone || "");
    if (!zone || document.cookie.split("; ").includes(`tz=${zone}`)) return;
    const secure = window.location.protocol === "https:" ? "; secure" : "";
    document.cookie = `tz=${zone}; path=/; max-age=31536000; samesite=lax${secure}`;
  }

  root.classList.add("js");
  apply();
  tellZone();
  dark.addEventListener("change", apply);
  window.addEventListener("storage", apply);
  document.addEventListener("evalsite:theme", apply);
}
