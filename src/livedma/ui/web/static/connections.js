// SPDX-License-Identifier: BSD-2-Clause
// A card for each connection: its limit, in words, and the figures behind that.

import { icon, keyed, make, put, say, setIcon } from "./dom.js";
import { colorOf, looks } from "./limits.js";
import { ofLatency, reference } from "./slow.js";
import { clientOf, latency, rates } from "./state.js";
import { UNKNOWN, count, duration, rate, size } from "./words.js";

/** Says what of the mapped memory is pinned; nothing, if the server does not tell. */
function pinned({ pinned_bytes: bytes, mapped_bytes: mapped }) {
  if (!Number.isFinite(bytes)) return "";
  return bytes === mapped ? ", all pinned" : `, ${size(bytes)} pinned`;
}

export class Connections {
  #root;
  #choose;
  #act;
  #cards = new Map();
  #empty = make("p", {
    class: "empty card",
    text: "No client is connected. As soon as one mounts this server, or a load runs against it, it is shown here.",
  });

  /** choose(number) shows a connection from now on. act(what, number): "extend" or "shrink" it. */
  constructor(root, choose, act) {
    this.#root = root;
    this.#choose = choose;
    this.#act = act;
  }

  draw(state, chosen) {
    const { connections, interval_s: intervalS } = state.frame.snapshot;
    const numbers = connections.map((one) => one.number).sort((a, b) => a - b);
    if (numbers.length) this.#empty.remove();
    else this.#root.append(this.#empty);
    keyed(this.#root, this.#cards, numbers, (number) => new Card(number, this.#choose, this.#act));
    for (const one of connections) {
      const card = this.#cards.get(one.number);
      card.draw(one, state.diagnosis(one.number), intervalS, one.number === chosen);
      put(card.node, "data-color", numbers.length > 1 ? colorOf(one.number) : null);
    }
  }

  /** Returns how many connections there are, and how many of them are slow. */
  static count(frame) {
    const slow = frame.diagnoses.filter((one) => one.is_degraded).length;
    return `${count(frame.snapshot.connections.length)}${slow ? `, ${count(slow)} slow` : ""}`;
  }
}

class Meter {
  #value = make("span", { class: "text" });
  #bar;
  #fill = make("span", { class: "fill" });

  constructor(label, kind) {
    this.#bar = make(
      "span",
      { class: `bar ${kind}`, role: "meter", "aria-label": label, "aria-valuemin": 0 },
      this.#fill,
    );
    this.node = make(
      "div",
      { class: "meter" },
      make("span", { class: "label", text: label }),
      this.#bar,
      this.#value,
    );
  }

  draw(value, most, text) {
    const known = value !== null && most > 0;
    this.#fill.style.width = known ? `${Math.min(100, (100 * value) / most)}%` : "0";
    put(this.#bar, "data-full", known && value >= most);
    put(this.#bar, "aria-valuemax", known ? most : 1);
    put(this.#bar, "aria-valuenow", known ? Math.min(value, most) : 0);
    put(this.#bar, "aria-valuetext", text);
    say(this.#value, text);
  }
}

class Card {
  #title;
  #client = make("span", { class: "client" });
  #sign = icon("fine");
  #word = make("span");
  #chip;
  #sentence = make("p", { class: "sentence" });
  #room = make("p", { class: "sentence room" });
  #figures = {};
  #memory = new Meter("Memory", "memory");
  #buffers = new Meter("Buffers", "buffers");
  #credits = new Meter("Credits", "credits");
  #extend;
  #shrink;
  #managed; // what memory that is managed has, and connections over TCP have not

  constructor(number, choose, act) {
    const pick = () => choose(number);
    this.#title = make("button", {
      type: "button",
      class: "title",
      text: `Connection ${number}`,
      on: { click: pick },
    });
    this.#chip = make("span", { class: "chip" }, this.#sign, this.#word);
    const figures = make("dl", { class: "figures" });
    for (const name of ["Bandwidth", "p50", "p99", "Operations", "Sessions", "In flight"]) {
      this.#figures[name] = make("dd");
      figures.append(make("div", {}, make("dt", { text: name }), this.#figures[name]));
    }
    const button = (what, text) =>
      make("button", {
        type: "button",
        class: "small",
        text,
        data: { act: what },
        "aria-label": `${text} connection ${number}`,
        on: { click: () => act(what, number) },
      });
    this.#extend = button("extend", "Extend…");
    this.#shrink = button("shrink", "Shrink…");
    this.#managed = [
      make("div", { class: "meters" }, this.#memory.node, this.#buffers.node, this.#credits.node),
      make("div", { class: "acts" }, this.#extend, this.#shrink),
    ];
    this.node = make(
      "article",
      {
        class: "connection card",
        "aria-label": `Connection ${number}`,
        data: { connection: number },
      },
      make("header", {}, make("h3", {}, this.#title), this.#client, this.#chip),
      this.#sentence,
      this.#room,
      figures,
      ...this.#managed,
    );
    this.node.addEventListener("click", (event) => {
      if (!event.target.closest("button")) pick();
    });
  }

  draw(one, diagnosis, intervalS, isChosen) {
    put(this.node, "data-chosen", isChosen);
    put(this.#title, "aria-pressed", isChosen ? "true" : "false");
    say(this.#client, `${one.transport === "tcp" ? "TCP client" : "client"} ${clientOf(one)}`);
    this.#diagnose(diagnosis);
    const { bytesPerS, operationsPerS } = rates(one, intervalS);
    const says = {
      Bandwidth: rate(bytesPerS),
      p50: duration(latency(one, "p50_ns")),
      p99: duration(latency(one, "p99_ns")),
      Operations: operationsPerS === null ? UNKNOWN : `${count(operationsPerS)}/s`,
      Sessions: `${count(one.sessions)}${one.refuses_sessions ? ", new ones are refused" : ""}`,
      "In flight": count(one.in_flight),
    };
    for (const [name, text] of Object.entries(says)) say(this.#figures[name], text);
    const against = reference(diagnosis);
    for (const [name, key] of [
      ["p50", "p50_ns"],
      ["p99", "p99_ns"],
    ])
      put(this.#figures[name], "data-level", ofLatency(latency(one, key), against));
    this.#measure(one, one.inside);
  }

  #diagnose(diagnosis) {
    const { tone, sign, word } = diagnosis
      ? looks(diagnosis.limit, diagnosis.is_degraded)
      : { tone: "soft", sign: "why", word: "not known yet" };
    put(this.node, "data-tone", tone);
    put(this.#chip, "data-tone", tone);
    put(this.#chip, "data-slow", diagnosis?.is_degraded ?? false);
    setIcon(this.#sign, sign);
    say(this.#word, word);
    say(this.#sentence, diagnosis?.sentence ?? "");
    const found = diagnosis?.room;
    const room = (diagnosis?.is_degraded ? found?.slow_sentence : found?.sentence) ?? "";
    say(this.#room, room);
    this.#room.hidden = !room;
  }

  #measure(one, inside) {
    for (const node of this.#managed) node.hidden = one.transport === "tcp";
    if (inside) {
      this.#memory.draw(
        inside.mapped_bytes,
        inside.window_bytes,
        `${size(inside.mapped_bytes)} mapped of ${size(inside.window_bytes)} reserved${pinned(inside)}`,
      );
      const wanted = inside.buffers_wanted ? `, ${count(inside.buffers_wanted)} more wanted` : "";
      this.#buffers.draw(
        inside.buffers_taken,
        inside.buffers,
        `${count(inside.buffers_taken)} of ${count(inside.buffers)} taken${wanted}`,
      );
    } else {
      this.#memory.draw(null, 1, UNKNOWN);
      this.#buffers.draw(null, 1, UNKNOWN);
    }
    const asked =
      one.credits_asked > one.credits_granted ? `, ${count(one.credits_asked)} asked for` : "";
    const hasCredits = Number.isFinite(one.credits_granted);
    if (!hasCredits) this.#credits.draw(null, 1, UNKNOWN);
    else
      this.#credits.draw(
        one.in_flight,
        one.credits_granted,
        `${count(one.in_flight)} of ${count(one.credits_granted)} in use${asked}`,
      );
    this.#extend.disabled = this.#shrink.disabled = !inside;
  }
}
