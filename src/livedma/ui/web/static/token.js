// SPDX-License-Identifier: BSD-2-Clause
// The token that allows actions. It comes with the address that the server prints, behind the #,
// which browsers do not send; it is kept as long as this tab is open.

const KEY = "livedma-token";

export function fromAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found === null) return;
  keep(found);
  history.replaceState(null, "", location.pathname + location.search);
}

let current = (() => {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // storage is forbidden here
  }
})();

export const token = () => current;

export function keep(text) {
  current = text.trim();
  try {
    if (current) sessionStorage.setItem(KEY, current);
    else sessionStorage.removeItem(KEY);
  } catch {
    // it holds until the page is left
  }
}
