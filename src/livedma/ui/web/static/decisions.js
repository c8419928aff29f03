// SPDX-License-Identifier: BSD-2-Clause
// What the controller saw, decided and did, the latest first.

import { icon, keyed, make } from "./dom.js";
import { sign, tone } from "./limits.js";
import { told } from "./marks.js";
import { clock } from "./words.js";

export class Decisions {
  #list;
  #lines = new Map();
  #empty = make("li", { class: "empty", text: "Nothing has had to be decided yet." });

  constructor(list) {
    this.#list = list;
  }

  draw(events) {
    if (events.length) this.#empty.remove();
    else this.#list.append(this.#empty);
    const byNumber = new Map(events.map((one) => [one.number, one]));
    keyed(this.#list, this.#lines, [...byNumber.keys()].reverse(), (number) => ({
      node: line(byNumber.get(number)),
    }));
  }

  /** Forgets decisions of another server, or of one that has restarted: numbers begin anew. */
  forget() {
    this.#lines.forEach((one) => one.node.remove());
    this.#lines.clear();
  }
}

function line(event) {
  const where = event.connection === null ? "" : `connection ${event.connection}`;
  return make(
    "li",
    { data: { kind: event.kind, tone: tone(event.kind), number: event.number } },
    icon(sign(event.kind)),
    make("b", { text: event.kind }),
    make("span", { class: "where", text: where }),
    make("time", {
      text: clock(event.wall_s),
      datetime: new Date(event.wall_s * 1000).toISOString(),
    }),
    make("p", { text: told(event) }),
  );
}
