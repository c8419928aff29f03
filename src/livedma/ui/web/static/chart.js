// SPDX-License-Identifier: BSD-2-Clause
// One figure of all connections over time: a line each, the chosen one in front.

import { make, put, say, svg } from "./dom.js";
import { colorOf } from "./limits.js";
import { binaryStep, decimalStep, marks } from "./scale.js";

const GAP_S = 3; // between two points: nothing was measured in between, so nothing is drawn
const TOP = 6;
const BOTTOM = 4;
const LINES = 3; // of the grid, above 0

export class Chart {
  #about;
  #now = make("output");
  #svg;
  #grid = svg("g", { class: "grid" });
  #lines = svg("g");
  #marks = svg("g", { class: "events" });
  #cursor = svg("line", { class: "cursor", visibility: "hidden" });
  #bound = svg("line", { class: "bound", visibility: "hidden" });

  /** about: name, column, words (a figure for people), binary, step (it jumps), explains. */
  constructor(about) {
    this.#about = about;
    this.#svg = svg(
      "svg",
      { role: "img", "aria-label": about.name },
      this.#grid,
      this.#bound,
      this.#marks,
      this.#lines,
      this.#cursor,
    );
    const caption = make(
      "figcaption",
      {},
      make("b", { text: about.name }),
      make("small", { text: about.explains }),
      this.#now,
    );
    this.node = make("figure", { class: "chart" }, caption, this.#svg);
  }

  /**
   * view: {width, height, x(wallS), from, events, cursor}. bound: a limit, such as what is
   * reserved, drawn if it fits; null: none.
   */
  draw(state, chosen, view, bound) {
    const { column, words } = this.#about;
    const series = this.#series(state, view.from);
    const most = Math.max(
      0,
      ...series.flatMap(({ points }) => points.map((one) => one.value ?? 0)),
    );
    const y = this.#axis(most, bound, view);
    this.#lines.replaceChildren(...this.#paths(series, chosen, view, y, state));
    this.#marks.replaceChildren(
      ...view.events.map(({ x, isOpen }) =>
        svg("line", { x1: x, x2: x, y1: 0, y2: view.height, class: isOpen ? "open" : null }),
      ),
    );
    const { cursor } = view;
    put(this.#cursor, "visibility", cursor ? "visible" : "hidden");
    if (cursor)
      for (const [name, value] of [
        ["x1", cursor.x],
        ["x2", cursor.x],
        ["y1", 0],
        ["y2", view.height],
      ])
        put(this.#cursor, name, value);
    const place = cursor ? cursor.place : state.at.length - 1;
    const value = this.#known(state.lines.get(chosen)?.[column][place]);
    say(this.#now, words(value));
    put(
      this.#svg,
      "aria-label",
      `${this.#about.name} of connection ${chosen}: ${words(value)}; at most ${words(most)} here`,
    );
    return words(value);
  }

  /** Returns the value, or null: a latency or a size of 0 was never measured. */
  #known(value) {
    return value === undefined || (value === 0 && this.#about.zeroIsUnknown) ? null : value;
  }

  #series(state, from) {
    const first = Math.max(0, state.at.findIndex((at) => at >= from) - 1);
    return [...state.lines].map(([number, columns]) => ({
      number,
      points: columns[this.#about.column]
        .slice(first)
        .map((value, place) => ({ at: state.at[first + place], value: this.#known(value) })),
    }));
  }

  #axis(most, bound, view) {
    const { width, height } = view;
    // A bound far above all values would flatten them; one among them always fits.
    const isBound = bound !== null && bound > 0 && bound <= 8 * most;
    const reach = Math.max(isBound ? bound : 0, most) || 1;
    const step = (this.#about.binary ? binaryStep : decimalStep)(reach, LINES);
    const found = marks(reach, step);
    const top = found.at(-1);
    const y = (value) => height - BOTTOM - (value / top) * (height - TOP - BOTTOM);
    put(this.#svg, "width", width);
    put(this.#svg, "height", height);
    put(this.#svg, "viewBox", `0 0 ${width} ${height}`);
    this.#grid.replaceChildren(
      ...found.flatMap((value) => [
        svg("line", { x1: view.left, x2: width - view.right, y1: y(value), y2: y(value) }),
        svg("text", {
          x: view.left - 8,
          y: y(value),
          text: value ? this.#about.words(value) : "0",
        }),
      ]),
    );
    put(this.#bound, "visibility", isBound ? "visible" : "hidden");
    if (isBound)
      for (const [name, value] of [
        ["x1", view.left],
        ["x2", width - view.right],
        ["y1", y(bound)],
        ["y2", y(bound)],
      ])
        put(this.#bound, name, value);
    return y;
  }

  #paths(series, chosen, view, y, state) {
    const inFront = [...series].sort((a, b) => (a.number === chosen) - (b.number === chosen));
    return inFront.flatMap(({ number, points }) => {
      const runs = unbroken(points);
      const isChosen = number === chosen;
      const color = series.length > 1 ? colorOf(number) : 0;
      const ended = state.connection(number) ? null : true;
      const look = {
        class: isChosen ? "line chosen" : "line",
        "data-color": color,
        "data-ended": ended,
      };
      const found = [
        svg("path", { ...look, d: runs.map((run) => this.#path(run, view, y)).join("") }),
      ];
      if (isChosen) {
        const base = y(0);
        const area = runs.map(
          (run) => `${this.#path(run, view, y)}V${base}H${across(run[0].at, view)}Z`,
        );
        found.unshift(svg("path", { class: "area", "data-color": color, d: area.join("") }));
      }
      return found;
    });
  }

  #path(run, view, y) {
    return run
      .map(({ at, value }, place) => {
        const x = across(at, view);
        const to = y(value).toFixed(1);
        if (place === 0) return `M${x} ${to}`;
        return this.#about.step ? `H${x}V${to}` : `L${x} ${to}`;
      })
      .join("");
  }
}

/** Returns the position of a time; times before the axis are at its beginning. */
const across = (at, view) => Math.max(view.left, view.x(at)).toFixed(1);

/** Returns the points in runs without a gap. */
function unbroken(points) {
  const runs = [];
  let run = [];
  for (const point of points) {
    if (run.length && (point.value === null || point.at - run.at(-1).at > GAP_S)) {
      runs.push(run);
      run = [];
    }
    if (point.value !== null) run.push(point);
  }
  if (run.length) runs.push(run);
  return runs;
}
