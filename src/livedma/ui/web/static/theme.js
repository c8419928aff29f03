// SPDX-License-Identifier: BSD-2-Clause
// Runs before the page is drawn: the user's choice of light or dark; without one it is the
// system's. A classic script, so that nothing flashes.
"use strict";

(() => {
  const KEY = "livedma-theme";
  const NAMES = ["auto", "light", "dark"];
  const kept = (() => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage is forbidden here
    }
  })();

  function choose(name) {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
  }

  let current = NAMES.includes(kept) ? kept : "auto";
  choose(current);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const say = () => (button.textContent = `Theme: ${current}`);
    say();
    button.addEventListener("click", () => {
      current = NAMES[(NAMES.indexOf(current) + 1) % NAMES.length];
      choose(current);
      say();
      try {
        localStorage.setItem(KEY, current);
      } catch {
        // the choice holds until the page is left
      }
    });
  });
})();
