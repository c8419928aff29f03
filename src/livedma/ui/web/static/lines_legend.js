// SPDX-License-Identifier: BSD-2-Clause
// Which line of the charts belongs to which connection, and which connections have ended.

import { keyed, make, put, say } from "./dom.js";
import { colorOf } from "./limits.js";

const MOST = 12;

export class LinesLegend {
  node = make("ul", { class: "legend of-lines", "aria-label": "Lines" });
  #entries = new Map();
  #more = make("li", {});

  draw(state, chosen) {
    const numbers = [...state.lines.keys()].sort((a, b) => a - b);
    const living = numbers.filter((one) => state.connection(one));
    const ended = numbers.filter((one) => !state.connection(one));
    // A single line of a live connection needs no legend.
    const all = numbers.length > 1 || ended.length ? [...living, ...ended.reverse()] : [];
    const shown = all.slice(0, MOST);
    this.#more.remove();
    keyed(this.node, this.#entries, shown, (number) => new Entry(number));
    for (const number of shown) {
      const entry = this.#entries.get(number);
      const color = numbers.length > 1 ? colorOf(number) : 0;
      entry.draw(state.clients.get(number), color, !state.connection(number), number === chosen);
    }
    if (all.length > MOST) {
      say(this.#more, `and ${all.length - MOST} more`);
      this.node.append(this.#more);
    }
    this.node.hidden = all.length === 0;
  }
}

class Entry {
  #text = make("span");
  #swatch = make("span", { class: "swatch-line" });
  #number;

  constructor(number) {
    this.#number = number;
    this.node = make("li", { data: { connection: number } }, this.#swatch, this.#text);
  }

  draw(client, color, isEnded, isChosen) {
    put(this.#swatch, "data-color", color);
    put(this.node, "data-ended", isEnded);
    put(this.node, "data-chosen", isChosen);
    const of = client ? ` ${client}` : "";
    say(this.#text, `${this.#number}${of}${isEnded ? ", ended" : ""}`);
  }
}
