// SPDX-License-Identifier: BSD-2-Clause
// Bandwidth, p99 and mapped memory on one axis of time, with decisions marked on it.

import { Chart } from "./chart.js";
import { make, say, svg } from "./dom.js";
import { LinesLegend } from "./lines_legend.js";
import { Marks } from "./marks.js";
import { timeStep } from "./scale.js";
import { reference } from "./slow.js";
import { clock, duration, rate, size } from "./words.js";

const CHARTS = [
  { name: "Bandwidth", column: "bytes_per_s", words: rate, explains: "reads and writes" },
  {
    name: "p99",
    column: "p99_ns",
    words: duration,
    zeroIsUnknown: true,
    explains: "of calls; dashed: wanted, else usual",
  },
  {
    name: "Mapped memory",
    column: "mapped_bytes",
    words: size,
    zeroIsUnknown: true,
    binary: true,
    step: true,
    explains: "dashed: all that is reserved",
  },
];
const SPANS = [
  [60, "1 min"],
  [120, "2 min"],
  [300, "5 min"],
  [600, "10 min"],
];
const LEAST_S = 30; // a server that has just begun has little to show
const LEFT = 68;
const RIGHT = 12;
const HEIGHT = 92;
const MARK_PX = 90; // between two times on the axis

export class TimeLines {
  #charts = CHARTS.map((about) => new Chart(about));
  #plots;
  #marks;
  #axis = svg("svg", { class: "axis", height: 20, "aria-hidden": "true" });
  #title = make("h2", { id: "lines-title" });
  #legend = new LinesLegend();
  #heard = make("p", { class: "unseen", "aria-live": "polite" });
  #spanS = 120;
  #cursorS = null;
  #state = null;
  #chosen = null;

  constructor(root) {
    this.#marks = new Marks(() => this.#redraw());
    this.#plots = make(
      "div",
      {
        class: "plots",
        tabindex: 0,
        role: "group",
        "aria-label": "Time lines: the left and right arrows read them, Escape returns to now",
        on: {
          pointermove: (event) => this.#point(event.clientX),
          pointerleave: () => this.#read(null),
          keydown: (event) => this.#key(event),
          blur: () => this.#read(null),
        },
      },
      ...this.#charts.map((one) => one.node),
      this.#axis,
    );
    const spans = make("div", {
      class: "choice",
      role: "radiogroup",
      "aria-label": "How long the time lines are",
    });
    for (const [seconds, text] of SPANS) {
      const input = make("input", {
        type: "radio",
        name: "span",
        value: seconds,
        checked: seconds === this.#spanS,
        on: { change: () => this.#stretch(seconds) },
      });
      spans.append(make("label", {}, input, make("span", { text })));
    }
    const stage = make("div", { class: "stage" }, this.#marks.node, this.#plots, this.#marks.tip);
    root.append(
      make("div", { class: "head" }, this.#title, spans),
      this.#legend.node,
      stage,
      this.#heard,
    );
    new ResizeObserver(() => this.#redraw()).observe(this.#plots);
  }

  draw(state, chosen) {
    this.#state = state;
    this.#chosen = chosen;
    say(this.#title, chosen === null ? "Time lines" : `Time lines of connection ${chosen}`);
    this.#legend.draw(state, chosen);
    this.#redraw();
  }

  /** Returns the part of the chosen time that is shown: no more than there is. */
  get #shownS() {
    const { at, frame } = this.#state;
    const known = at.length ? frame.snapshot.wall_s - at[0] : 0;
    return Math.min(this.#spanS, Math.max(LEAST_S, known));
  }

  #redraw() {
    const state = this.#state;
    const width = this.#plots.clientWidth;
    if (!state?.frame || !width) return null;
    const to = state.frame.snapshot.wall_s;
    const shown = this.#shownS;
    const from = to - shown;
    const inner = width - LEFT - RIGHT;
    const x = (wallS) => LEFT + ((wallS - from) / shown) * inner;
    const events = state.events.filter(
      ({ connection }) => connection === null || [connection, null].includes(this.#chosen),
    );
    const view = {
      width,
      from,
      x,
      left: LEFT,
      right: RIGHT,
      height: HEIGHT,
      // Grouped by the whole span: marks that are one stay one while there is more to show.
      events: this.#marks.draw(events, { x, from, secondsPerPx: this.#spanS / inner, width }),
      cursor: this.#cursor(x, from),
    };
    const bounds = {
      mapped_bytes: state.window(this.#chosen)?.bytes ?? null,
      p99_ns: reference(state.diagnosis(this.#chosen))?.ns ?? null,
    };
    const said = this.#charts.map((chart, place) =>
      chart.draw(state, this.#chosen, view, bounds[CHARTS[place].column] ?? null),
    );
    this.#times(view, to);
    return said;
  }

  #cursor(x, from) {
    const { at } = this.#state;
    if (this.#cursorS === null || !at.length) return null;
    const place = nearest(at, Math.max(this.#cursorS, from));
    return { place, x: x(at[place]), at: at[place] };
  }

  #times(view, to) {
    const step = timeStep(
      to - view.from,
      Math.max(2, Math.floor((view.width - LEFT - RIGHT) / MARK_PX)),
    );
    const found = [];
    for (let at = Math.ceil(view.from / step) * step; at <= to; at += step) {
      const x = view.x(at);
      if (x > LEFT + 20 && x < view.width - 30)
        found.push(svg("text", { x, y: 14, text: clock(at) }));
    }
    if (view.cursor)
      found.push(
        svg("text", {
          x: Math.min(view.width - 34, view.cursor.x),
          y: 14,
          class: "at",
          text: clock(view.cursor.at),
        }),
      );
    this.#axis.setAttribute("width", view.width);
    this.#axis.replaceChildren(...found);
  }

  #stretch(seconds) {
    this.#spanS = seconds;
    this.#redraw();
  }

  #read(wallS) {
    this.#cursorS = wallS;
    return this.#redraw();
  }

  #point(clientX) {
    const frame = this.#state?.frame;
    if (!frame) return;
    const box = this.#plots.getBoundingClientRect();
    const part = (clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    this.#read(part < 0 || part > 1 ? null : frame.snapshot.wall_s - this.#shownS * (1 - part));
  }

  #key(event) {
    const at = this.#state?.at;
    if (!at?.length) return;
    const place = this.#cursorS === null ? at.length - 1 : nearest(at, this.#cursorS);
    const to = {
      ArrowLeft: place - 1,
      ArrowRight: place + 1,
      PageUp: place - 10,
      PageDown: place + 10,
      Home: 0,
      End: at.length - 1,
    }[event.key];
    if (event.key === "Escape") this.#read(null);
    if (to === undefined) return;
    event.preventDefault();
    const first = nearest(at, at.at(-1) - this.#spanS);
    const wallS = at[Math.min(at.length - 1, Math.max(first, to))];
    const said = this.#read(wallS);
    if (said)
      say(
        this.#heard,
        `${clock(wallS)}: ${said.map((text, one) => `${CHARTS[one].name} ${text}`).join(", ")}`,
      );
  }
}

/** Returns the index of the nearest time; times go up. */
function nearest(times, wanted) {
  let low = 0;
  let high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - times[low - 1] < times[low] - wanted ? low - 1 : low;
}
