// SPDX-License-Identifier: BSD-2-Clause
// The server as a whole: its policy, how it is watched, and what its connections share.

import { make, put, say } from "./dom.js";
import { UNKNOWN, amount, clock, count, percent, rate, size, span } from "./words.js";

const WATCHED = {
  bpf: "BPF on the wire",
  server: "the server itself",
  "bpf+server": "BPF and the server itself",
};

export class Facts {
  #list;
  #server;
  #values = {};

  constructor(list, server, askPolicy) {
    this.#list = list;
    this.#server = server;
    const change = make("button", {
      type: "button",
      class: "small",
      id: "change-policy",
      text: "Change…",
      "aria-label": "Change the policy",
      on: { click: askPolicy },
    });
    this.#add("policy", "Policy", change);
    this.#add("total", "All connections");
    this.#add("sessions", "Sessions");
    this.#add("memory", "DMA memory");
    this.#add("cpu", "Device thread");
    this.#add("watching", "Watching");
    this.#add("since", "Since");
    this.#add("unseen", "Not seen");
  }

  #add(name, label, ...more) {
    const value = make("span");
    const fact = make(
      "div",
      { data: { fact: name } },
      make("dt", { text: label }),
      make("dd", {}, value, ...more),
    );
    this.#values[name] = { value, fact };
    this.#list.append(fact);
  }

  #say(name, text, tone = null) {
    const { value, fact } = this.#values[name];
    say(value, text);
    put(fact, "data-tone", tone);
  }

  /** totals: {bytesPerS, operationsPerS} of all connections. */
  draw(frame, totals) {
    const { snapshot } = frame;
    const { host } = snapshot;
    this.#list.hidden = false;
    say(this.#server, frame.server);
    this.#say(
      "policy",
      frame.dry_run ? `${frame.policy}, dry run: nothing is done` : frame.policy,
      frame.dry_run ? "else" : null,
    );
    this.#say("watching", WATCHED[frame.watching] ?? frame.watching);
    this.#say("since", `${clock(frame.started_s)}, ${span(snapshot.wall_s - frame.started_s)}`);
    const bound = host.budget_bytes === null ? "" : ` of ${size(host.budget_bytes)}`;
    this.#say("memory", `${size(host.mapped_bytes)}${bound} mapped`);
    this.#say("cpu", host.cpu_busy === null ? UNKNOWN : `${percent(host.cpu_busy)} busy`);
    const { bytesPerS, operationsPerS } = totals;
    this.#say("total", `${rate(bytesPerS)}, ${count(operationsPerS)} op/s`);
    const refused = Facts.#refused(snapshot);
    this.#say(
      "sessions",
      `${count(snapshot.sessions.length)}${refused}`,
      refused ? "bad" : null,
    );
    const unseen = Object.entries(snapshot.losses).filter(([, number]) => number > 0);
    this.#values.unseen.fact.hidden = unseen.length === 0;
    this.#say(
      "unseen",
      unseen.map(([name, number]) => `${count(number)} ${name}`).join(", "),
      "else",
    );
  }

  /** Says whose new sessions are refused; empty: nobody's. */
  static #refused({ host, connections }) {
    if (host.refuses_sessions) return ", new ones are refused to everybody";
    const on = connections.filter((one) => one.refuses_sessions).map((one) => one.number);
    return on.length ? `, new ones are refused on connection ${on.join(", ")}` : "";
  }

  /** Returns the title of the tab. */
  static title(frame) {
    const slow = frame.diagnoses.filter((one) => one.is_degraded);
    if (!slow.length) return `livedma ${frame.server}`;
    const what = slow.length === 1 ? slow[0].limit : amount(slow.length, "connection");
    return `slow: ${what} – livedma ${frame.server}`;
  }
}
