// SPDX-License-Identifier: BSD-2-Clause
// Decisions as marks above the time lines: pointing at a mark, or its focus, shows their text.

import { icon, keyed, make, put, say, setIcon } from "./dom.js";
import { acts, foremost, sign, tone } from "./limits.js";
import { clock } from "./words.js";

const APART_PX = 36; // events nearer than this share one mark
const TIP_PX = 360;
const LINGER_MS = 200; // so that the pointer can get to the tip

export class Marks {
  node = make("div", {
    class: "marks",
    role: "group",
    "aria-label": "Decisions on the time lines: arrows go from one to the next",
  });
  tip = make("div", { class: "tip", role: "tooltip", id: "tip", hidden: true });
  #marks = new Map();
  #changed;
  #open = null;
  #hiding = 0;
  #width = 0;

  constructor(changed) {
    this.#changed = changed;
    this.node.addEventListener("keydown", (event) => this.#key(event));
    this.tip.addEventListener("pointerenter", () => clearTimeout(this.#hiding));
    this.tip.addEventListener("pointerleave", () => this.#hide());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.#show(null));
  }

  /**
   * Marks the events that are in sight. Returns lines, {x, isOpen}: where something was done, else
   * where the first event was.
   */
  draw(events, { x, from, secondsPerPx, width }) {
    this.#width = width;
    const together = grouped(events, APART_PX * secondsPerPx);
    for (const [key, [first]] of together) if (first.wall_s < from) together.delete(key);
    keyed(this.node, this.#marks, [...together.keys()], (key) => this.#make(key));
    const found = [];
    for (const [key, its] of together) {
      const mark = this.#marks.get(key);
      const at = x(its[0].wall_s);
      mark.events = its;
      mark.node.style.left = `${at.toFixed(1)}px`;
      put(mark.node, "data-tone", tone(foremost(its).kind));
      put(mark.node, "aria-label", its.map(lineOf).join("; "));
      setIcon(mark.sign, sign(foremost(its).kind));
      say(mark.count, its.length > 1 ? String(its.length) : "");
      const done = its.filter(acts);
      const isOpen = key === this.#open;
      for (const one of done.length ? done : [its[0]]) found.push({ x: x(one.wall_s), isOpen });
      if (isOpen) this.#place(at, its);
    }
    if (this.#open !== null && !together.has(this.#open)) this.#show(null);
    this.#rove();
    return found;
  }

  #make(key) {
    const mark = { events: [], sign: icon("why"), count: make("small") };
    mark.node = make(
      "button",
      {
        type: "button",
        class: "mark-of",
        "aria-describedby": "tip",
        on: {
          pointerenter: () => this.#show(key),
          pointerleave: () => this.#hide(),
          focus: () => this.#show(key),
          blur: () => this.#show(null),
          click: () => mark.node.focus(), // some browsers do not
        },
      },
      mark.sign,
      mark.count,
    );
    return mark;
  }

  #hide() {
    this.#hiding = setTimeout(() => {
      if (!this.#marks.get(this.#open)?.node.matches(":focus")) this.#show(null);
    }, LINGER_MS);
  }

  #show(key) {
    clearTimeout(this.#hiding);
    if (key === this.#open) return;
    this.#open = key;
    this.tip.hidden = key === null;
    this.#changed();
  }

  #place(at, events) {
    const shown = events.map((one) => one.number).join(" ");
    if (this.tip.dataset.shown !== shown) {
      this.tip.dataset.shown = shown;
      this.tip.replaceChildren(
        ...events.map((one) =>
          make(
            "p",
            { data: { tone: tone(one.kind) } },
            make("time", { text: clock(one.wall_s) }),
            icon(sign(one.kind)),
            make("b", { text: one.kind }),
            ` ${told(one)}`,
          ),
        ),
      );
    }
    const wide = Math.min(TIP_PX, this.#width);
    this.tip.style.left = `${Math.max(0, Math.min(this.#width - wide, at - wide / 2))}px`;
    this.tip.style.width = `${wide}px`;
  }

  /** Puts one mark into the order of Tab: the last, or the one that has the focus. */
  #rove() {
    const all = [...this.node.children];
    const current = all.find((one) => one.matches(":focus")) ?? all.at(-1);
    for (const one of all) put(one, "tabindex", one === current ? 0 : -1);
  }

  #key(event) {
    const all = [...this.node.children];
    const place = all.indexOf(document.activeElement);
    const to = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: all.length - 1 }[
      event.key
    ];
    if (place < 0 || to === undefined) return;
    event.preventDefault();
    all[Math.min(all.length - 1, Math.max(0, to))].focus();
    this.#rove();
  }
}

/** Groups events by the number of the first of each group, however far the lines have moved. */
function grouped(events, apartS) {
  const found = new Map();
  let first = null;
  for (const one of events) {
    if (first === null || Math.abs(one.wall_s - first.wall_s) >= apartS) {
      first = one;
      found.set(first.number, []);
    }
    found.get(first.number).push(one);
  }
  return found;
}

/** Returns its text, and whether it was a dry run. */
export const told = (event) => `${event.text}${event.dry ? " (dry run)" : ""}`;

export const lineOf = (event) => `${clock(event.wall_s)} ${event.kind}: ${told(event)}`;
