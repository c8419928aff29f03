// SPDX-License-Identifier: BSD-2-Clause
// The answer to why a session is slow, asked for again while it is shown.

import { icon, make, put, say, setIcon } from "./dom.js";
import { looks } from "./limits.js";
import { why } from "./server.js";
import { count, duration, rate, size } from "./words.js";

const AGAIN_MS = 2000;
const NAMES = { bytes_per_s: "bandwidth" };
/** Names of evidence end in their units. */
const UNITS = [
  ["bytes_per_s", rate],
  ["per_s", (value) => `${count(value)}/s`],
  ["ms", (value) => duration(value * 1e6)],
  ["bytes", size],
  ["calls", count],
];

export class WhyDialog {
  #dialog;
  #title = make("h2", { id: "why-title" });
  #id = make("code");
  #sign = icon("why");
  #word = make("span");
  #chip;
  #lines = make("ul");
  #figures = make("dl", { class: "evidence" });
  #session = null;
  #timer = 0;

  constructor(dialog) {
    this.#dialog = dialog;
    this.#chip = make("span", { class: "chip" }, this.#sign, this.#word);
    const close = make("button", {
      type: "button",
      text: "Close",
      on: { click: () => dialog.close() },
    });
    dialog.append(
      this.#title,
      make("p", {}, this.#chip),
      this.#lines,
      this.#figures,
      make("p", { class: "soft" }, this.#id),
      make("div", { class: "buttons" }, close),
    );
    dialog.addEventListener("close", () => {
      clearTimeout(this.#timer);
      this.#session = null;
    });
  }

  open(id) {
    this.#session = id;
    say(this.#title, `Session ${id.slice(0, 8)}`);
    say(this.#id, `livedma why ${id}`);
    this.#chip.hidden = true;
    this.#lines.replaceChildren(make("li", { text: "asking the server" }));
    this.#figures.replaceChildren();
    this.#dialog.showModal();
    this.#ask(id);
  }

  async #ask(id) {
    let found = null;
    let trouble = "";
    try {
      found = await why(id);
    } catch (error) {
      trouble = error.message;
    }
    if (this.#session !== id) return;
    if (found) this.#draw(found);
    else this.#fail(trouble);
    this.#timer = setTimeout(() => this.#ask(id), AGAIN_MS);
  }

  #draw(found) {
    const { tone, sign, word } = looks(found.limit, found.is_slow);
    this.#chip.hidden = false;
    put(this.#chip, "data-tone", tone);
    put(this.#chip, "data-slow", found.is_slow);
    setIcon(this.#sign, sign);
    say(this.#word, word);
    this.#lines.replaceChildren(...found.lines.map((text) => make("li", { text })));
    this.#figures.replaceChildren(
      ...Object.entries(found.evidence).map(([name, value]) =>
        make(
          "div",
          {},
          make("dt", { text: label(name) }),
          make("dd", { text: figure(name, value) }),
        ),
      ),
    );
  }

  /** Shows an error in place of the last answer. */
  #fail(text) {
    this.#chip.hidden = true;
    this.#figures.replaceChildren();
    this.#lines.replaceChildren(make("li", { class: "wrong", text }));
  }
}

const unitOf = (name) =>
  UNITS.find(([unit]) => name === unit || name.endsWith(`_${unit}`)) ?? ["", String];

/** Returns "memory wait" for memory_wait_ms. */
function label(name) {
  const [unit] = unitOf(name);
  return NAMES[name] ?? (unit ? name.slice(0, -unit.length - 1) : name).replaceAll("_", " ");
}

const figure = (name, value) => unitOf(name)[1](value);
