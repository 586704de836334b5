// SPDX-License-Identifier: BSD-3-Clause
// The theme: as the system has it, light or dark.

import { byId } from "./dom.js";

const THEMES = ["system", "light", "dark"];
const KEY = "nupa-theme";

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage is off
  }
}

/** Makes the button of the theme work. */
export function startTheme() {
  const button = byId("theme");
  let theme = THEMES.includes(stored()) ? stored() : "system";
  const show = () => {
    document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // It lasts as long as the page.
    }
    show();
  });
  show();
}
