// SPDX-License-Identifier: BSD-2-Clause
// The look of limits and events: a tone, a sign and a word each. Colour is never the only one.

const COLORS = 6; // of look.css

/** Returns the colour of a connection's line, by its number. */
export const colorOf = (connection) => (connection - 1) % COLORS;

/** The limits that livedma can lift. */
const LIFTED = new Set(["DMA memory", "credits", "slots"]);

/** Returns {tone, sign, word} of a diagnosis, or of an answer to why (is_slow). */
export function looks(limit, isSlow) {
  if (limit === "nothing") {
    return isSlow
      ? { tone: "else", sign: "slow", word: "slow" }
      : { tone: "fine", sign: "fine", word: "fine" };
  }
  const tone = LIFTED.has(limit) ? "help" : "else";
  return isSlow
    ? { tone, sign: "slow", word: `slow: ${limit}` }
    : { tone, sign: "limit", word: `fast enough: ${limit}` };
}

const TONES = {
  degraded: "else",
  why: "soft",
  forecast: "soft",
  plan: "help",
  done: "help",
  failed: "bad",
  check: "ink",
  undo: "else",
  shrink: "help",
  refuse: "bad",
  admit: "fine",
  recovered: "fine",
  policy: "ink",
  hand: "ink",
  source: "soft",
};
/** Of several events, the first kind of this list is shown. */
const WEIGHT = [
  "failed",
  "undo",
  "hand",
  "done",
  "shrink",
  "refuse",
  "admit",
  "policy",
  "degraded",
  "recovered",
  "check",
  "plan",
  "forecast",
  "why",
  "source",
];

export const tone = (kind) => TONES[kind] ?? "soft";
export const sign = (kind) => (kind in TONES ? kind : "why");

function weight(kind) {
  const found = WEIGHT.indexOf(kind);
  return found < 0 ? WEIGHT.length : found;
}

/** Events of these kinds have changed something; all others only say something. */
const ACTS = new Set(["done", "undo", "shrink", "hand", "refuse", "admit", "policy"]);
export const acts = (event) => ACTS.has(event.kind) && !event.dry;

export const foremost = (events) =>
  events.reduce((a, b) => (weight(b.kind) < weight(a.kind) ? b : a));
