// SPDX-License-Identifier: BSD-2-Clause
// A connection's window, drawn as a range of addresses, of which parts have memory.

import { keyed, make, put, say, svg } from "./dom.js";
import { binaryStep } from "./scale.js";
import { amount, count, size } from "./words.js";

const LABEL_PX = 84;
const COUNT_PX = 44;
const THIN_PX = 6; // too thin for a line to the next one: nothing would be left
const MARK_PX = 80;

export class WindowDrawing {
  #title = make("h2", { id: "window-title" });
  #range = make("div", { class: "range", role: "img" });
  #parts = new Map();
  #axis = svg("svg", { class: "axis", height: 20, "aria-hidden": "true" });
  #said = make("p", { class: "said-of" });
  #rows = make("tbody");
  #summary = make("summary");
  #last = null;

  constructor(root) {
    const legend = make("ul", { class: "legend", "aria-label": "Legend" });
    for (const [kind, text] of [
      ["data", "mapped for data"],
      ["calls", "mapped for calls and replies"],
      ["leased", "leased just now"],
      ["reserved", "reserved, without memory"],
    ]) {
      legend.append(
        make("li", {}, make("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), text),
      );
    }
    const head = make(
      "tr",
      {},
      ...["Offset", "Size", "For", "Buffers", "Leased"].map((text) =>
        make("th", { scope: "col", text }),
      ),
    );
    const table = make(
      "table",
      { "aria-label": "Parts of the window" },
      make("thead", {}, head),
      this.#rows,
    );
    const details = make("details", {}, this.#summary, make("div", { class: "scroll" }, table));
    root.append(
      make("div", { class: "head" }, this.#title, legend),
      this.#range,
      this.#axis,
      this.#said,
      details,
    );
    new ResizeObserver(() => this.#last && this.#place(this.#last)).observe(this.#range);
  }

  /** window: null if it is unknown. */
  draw(number, window) {
    this.#last = window;
    say(this.#title, number === null ? "Window" : `Window of connection ${number}`);
    this.#range.parentNode.hidden = window === null;
    if (window === null) return;
    const leased = window.parts.reduce(
      (sum, one) => sum + (one.taken * one.bytes) / (one.buffers || 1),
      0,
    );
    const text = `${size(window.bytes)} reserved, ${size(window.mapped_bytes)} of it mapped in ${amount(window.parts.length, "part")}, ${size(leased)} leased just now`;
    say(this.#said, text);
    put(this.#range, "aria-label", text);
    this.#place(window);
    this.#tabulate(window.parts);
  }

  #place(window) {
    const width = this.#range.clientWidth;
    keyed(
      this.#range,
      this.#parts,
      window.parts.map((one) => one.offset),
      () => {
        const fill = make("span", { class: "fill" });
        const label = make("span", { class: "label" });
        return { node: make("div", { class: "part" }, fill, label), fill, label };
      },
    );
    for (const one of window.parts) {
      const { node, fill, label } = this.#parts.get(one.offset);
      put(node, "data-use", one.use);
      put(
        node,
        "title",
        `${one.use}: ${size(one.bytes)} at ${size(one.offset)}, ${count(one.taken)} of ${count(one.buffers)} buffers leased`,
      );
      node.style.left = `${(100 * one.offset) / window.bytes}%`;
      node.style.width = `${(100 * one.bytes) / window.bytes}%`;
      fill.style.height = `${one.buffers ? (100 * one.taken) / one.buffers : 0}%`;
      const wide = (width * one.bytes) / window.bytes;
      put(node, "data-thin", wide < THIN_PX);
      const leased = `${count(one.taken)}/${count(one.buffers)}`;
      say(label, wide >= LABEL_PX ? `${one.use} ${leased}` : wide >= COUNT_PX ? leased : "");
    }
    this.#marks(window.bytes, width);
  }

  #marks(bytes, width) {
    const step = binaryStep(bytes, Math.max(2, Math.floor(width / MARK_PX)));
    const found = [];
    for (let at = 0; at <= bytes; at += step) {
      const anchor = at === 0 ? "start" : at === bytes ? "end" : "middle";
      found.push(
        svg("text", {
          x: (at / bytes) * width,
          y: 14,
          "text-anchor": anchor,
          text: at ? size(at) : "0",
        }),
      );
    }
    this.#axis.setAttribute("width", width);
    this.#axis.replaceChildren(...found);
  }

  #tabulate(parts) {
    say(this.#summary, "The parts in figures");
    if (!this.#rows.closest("details").open) return;
    this.#rows.replaceChildren(
      ...parts.map((one) =>
        make(
          "tr",
          {},
          ...[size(one.offset), size(one.bytes), one.use, count(one.buffers), count(one.taken)].map(
            (text) => make("td", { text }),
          ),
        ),
      ),
    );
  }
}
