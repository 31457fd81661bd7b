// The light or dark theme: the system's, unless the user chose one; the choice is stored in this browser.

import { byId } from "./dom";

const KEY = "turnout.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function startTheme(): void {
  apply();
  system.addEventListener("change", apply);
  byId("theme").addEventListener("click", () => {
    const next = current() === "dark" ? "light" : "dark";
    // Choosing the theme of the system means following the system again.
    if ((next === "dark") === system.matches) store(null);
    else store(next);
    apply();
  });
}

function current(): "light" | "dark" {
  const chosen = stored();
  return chosen === "light" || chosen === "dark" ? chosen : system.matches ? "dark" : "light";
}

function apply(): void {
  const theme = current();
  document.documentElement.dataset["theme"] = theme;
  const toggle = byId("theme");
  const other = theme === "dark" ? "light" : "dark";
  toggle.setAttribute("aria-label", `Use the ${other} theme`);
  toggle.title = `Use the ${other} theme`;
  toggle.textContent = theme === "dark" ? "☀" : "☾";
}

// The choice if the browser refuses storage; it lasts until the page is closed.
let chosenHere: string | null = null;

function stored(): string | null {
  try {
    return localStorage.getItem(KEY) ?? chosenHere;
  } catch {
    return chosenHere;
  }
}

function store(theme: string | null): void {
  chosenHere = theme;
  try {
    if (theme === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // The browser refuses storage; `chosenHere` has the choice.
  }
}
