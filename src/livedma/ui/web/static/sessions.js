// SPDX-License-Identifier: BSD-2-Clause
// The table of sessions. There may be thousands: it has only the rows that can be seen.

import { COLUMNS, digitsFor, sorted } from "./columns.js";
import { make, put, say, svg } from "./dom.js";
import { cue } from "./scroll.js";
import { WAITS, meanings, ofLatency, reference } from "./slow.js";
import { SPARK, latency } from "./state.js";
import { count } from "./words.js";

const ROW_PX = 34; // as style.css has it
const SPARK_PX = 28; // as style.css has it
const MORE = 4; // rows above and below what can be seen
const SORT_MS = 2000; // rows that change places all the time cannot be read

export class Sessions {
  #open;
  #state = null;
  #order = []; // ids
  #byId = new Map();
  #column = COLUMNS.find((one) => one.key === "bandwidth");
  #isDown = true;
  #sortedMs = -Infinity;
  #digits = 8;
  #active = null; // id of the row that has, or had, the focus
  #rows = [];
  #isHeld = false;

  #heads = new Map();
  #count = make("output", { class: "count" });
  #filter;
  #body = make("tbody");
  #above = make("tr", { class: "space", "aria-hidden": "true" }, make("td"));
  #below = make("tr", { class: "space", "aria-hidden": "true" }, make("td"));
  #table;
  #box;
  #empty = make("p", { class: "empty", hidden: true });
  #slow = make("li", { data: { level: "slow" } });
  #very = make("li", { data: { level: "very" } });
  #cue;

  /** open(id) shows more of a session. */
  constructor(root, open) {
    this.#open = open;
    this.#filter = make("input", {
      type: "search",
      id: "filter",
      placeholder: "beginning of an id, or connection 2",
      autocomplete: "off",
      spellcheck: "false",
      on: { input: () => this.#sort(true) },
    });
    const head = make("tr", {}, ...COLUMNS.map((column) => this.#head(column)));
    this.#body.append(this.#above, this.#below);
    this.#table = make(
      "table",
      { "aria-labelledby": "sessions-title", "aria-describedby": "sessions-how" },
      make("thead", {}, head),
      this.#body,
    );
    this.#box = make("div", { class: "rows", on: { scroll: () => this.#show() } }, this.#table);
    root.append(
      make(
        "div",
        { class: "head" },
        make("h2", { id: "sessions-title", text: "Sessions" }),
        this.#count,
        make("label", { class: "filter", for: "filter" }, "Filter ", this.#filter),
      ),
      make("p", {
        class: "unseen",
        id: "sessions-how",
        text: "Arrows go from row to row; Enter says why a session is slow.",
      }),
      this.#box,
      this.#empty,
      make("ul", { class: "legend levels", title: WAITS }, this.#slow, this.#very),
    );
    this.#cue = cue(this.#box);
    this.#hold();
    this.#body.addEventListener("click", (event) => this.#pick(event.target.closest("tr")));
    this.#body.addEventListener(
      "focusin",
      (event) => (this.#active = event.target.closest("tr").dataset.id ?? null),
    );
    this.#body.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#show()).observe(this.#box);
  }

  draw(state) {
    this.#state = state;
    const { sessions } = state.frame.snapshot;
    this.#byId = new Map(sessions.map((one) => [one.id, one]));
    this.#digits = digitsFor(sessions);
    this.#sort(false);
  }

  #head(column) {
    const th = make("th", {
      scope: "col",
      class: column.isWord ? "word" : null,
      title: column.hint,
      data: { key: column.key },
    });
    if (!column.value) {
      th.textContent = column.label;
      return th;
    }
    th.append(
      make("button", {
        type: "button",
        text: column.label,
        data: { sort: column.key },
        on: { click: () => this.#by(column) },
      }),
    );
    this.#heads.set(column, th);
    put(th, "aria-sort", column === this.#column ? "descending" : null);
    return th;
  }

  /** Rows keep their places while the pointer is over them, or the focus is in one. */
  #hold() {
    let isOver = false;
    const look = () => {
      this.#isHeld = isOver || this.#body.contains(document.activeElement);
    };
    this.#body.addEventListener("pointerenter", () => ((isOver = true), look()));
    this.#body.addEventListener("pointerleave", () => ((isOver = false), look()));
    this.#body.addEventListener("focusin", look);
    this.#body.addEventListener("focusout", () => setTimeout(look));
  }

  #by(column) {
    this.#isDown = column === this.#column ? !this.#isDown : Boolean(column.down);
    this.#column = column;
    for (const [one, th] of this.#heads) {
      put(th, "aria-sort", one === column ? (this.#isDown ? "descending" : "ascending") : null);
    }
    this.#box.scrollTop = 0;
    this.#sort(true);
  }

  #matches() {
    const wanted = this.#filter.value.trim().toLowerCase();
    const number = /^(?:c|conn\.?|connection)\s*(\d+)$/.exec(wanted)?.[1];
    if (number) return (one) => one.connections.includes(Number(number));
    return (one) => one.id.startsWith(wanted);
  }

  #sort(isNow) {
    if (!this.#state) return;
    const { sessions, interval_s: intervalS } = this.#state.frame.snapshot;
    const found = sessions.filter(this.#matches());
    const nowMs = performance.now();
    if (isNow || (!this.#isHeld && nowMs - this.#sortedMs >= SORT_MS)) {
      this.#order = sorted(found, this.#column, this.#isDown, intervalS).map((one) => one.id);
      this.#sortedMs = nowMs;
    } else {
      const there = new Set(found.map((one) => one.id));
      const kept = this.#order.filter((id) => there.delete(id));
      this.#order = [...kept, ...there];
    }
    this.#tell(sessions.length);
    this.#show();
    this.#cue();
    const [slow, very] = meanings(reference(this.#state.frame.diagnoses[0]));
    say(this.#slow, slow);
    say(this.#very, very);
  }

  #tell(all) {
    const shown = this.#order.length;
    say(this.#count, shown === all ? count(all) : `${count(shown)} of ${count(all)}`);
    this.#empty.hidden = shown > 0;
    say(this.#empty, all ? "None of them matches the filter." : "There is no session.");
    put(this.#table, "aria-rowcount", shown + 1);
  }

  #show() {
    if (!this.#state) return;
    const most = Math.ceil(this.#box.clientHeight / ROW_PX) + 2 * MORE;
    const first = Math.max(
      0,
      Math.min(Math.floor(this.#box.scrollTop / ROW_PX) - MORE, this.#order.length - most),
    );
    const shown = this.#order.slice(first, first + most);
    while (this.#rows.length < shown.length) this.#rows.push(this.#row());
    while (this.#rows.length > shown.length) this.#rows.pop().node.remove();
    this.#above.firstChild.style.height = `${first * ROW_PX}px`;
    this.#below.firstChild.style.height = `${(this.#order.length - first - shown.length) * ROW_PX}px`;
    const tabbed = shown.includes(this.#active) ? this.#active : shown[0];
    shown.forEach((id, place) => this.#fill(this.#rows[place], id, first + place, id === tabbed));
  }

  #row() {
    const cells = COLUMNS.map((column) =>
      make("td", {
        class: column.isWord ? "word" : null,
        data: { key: column.key },
      }),
    );
    const spark = svg("path");
    cells[COLUMNS.findIndex((one) => one.key === "spark")].append(
      svg(
        "svg",
        {
          class: "spark",
          viewBox: `0 0 ${SPARK - 1} ${SPARK_PX}`,
          preserveAspectRatio: "none",
          "aria-hidden": "true",
        },
        spark,
      ),
    );
    const node = make("tr", {}, ...cells);
    this.#body.insertBefore(node, this.#below);
    return { node, cells, spark };
  }

  #fill(row, id, place, isTabbed) {
    const one = this.#byId.get(id);
    const intervalS = this.#state.frame.snapshot.interval_s;
    const hadFocus = row.node === document.activeElement;
    row.node.dataset.id = id;
    put(row.node, "aria-rowindex", place + 2);
    put(row.node, "tabindex", isTabbed ? 0 : -1);
    const against = this.#against(one);
    COLUMNS.forEach((column, at) => {
      if (column.text) say(row.cells[at], column.text(one, intervalS, this.#digits));
      if (column.level) put(row.cells[at], "data-level", column.level(one, against));
    });
    put(row.spark, "data-level", ofLatency(latency(one, "p99_ns"), against));
    put(row.spark, "d", sparkline(this.#state.spark(id)));
    if (id === this.#active && !hadFocus && this.#body.contains(document.activeElement))
      row.node.focus({ preventScroll: true });
  }

  /** Returns what its times are compared with: from its first connection that has a reference. */
  #against(one) {
    for (const number of one.connections) {
      const found = reference(this.#state.diagnosis(number));
      if (found) return found;
    }
    return null;
  }

  #pick(row) {
    if (!row?.dataset.id) return;
    this.#active = row.dataset.id;
    this.#open(row.dataset.id);
  }

  #key(event) {
    if (this.#active === null) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#open(this.#active);
      return;
    }
    const place = this.#order.indexOf(this.#active);
    const page = Math.max(1, Math.floor(this.#box.clientHeight / ROW_PX) - 2);
    const to = {
      ArrowUp: place - 1,
      ArrowDown: place + 1,
      PageUp: place - page,
      PageDown: place + page,
      Home: 0,
      End: this.#order.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#go(Math.max(0, Math.min(this.#order.length - 1, to)));
  }

  /** Scrolls to a row that may not exist yet: below the head, and above the end. */
  #go(place) {
    this.#active = this.#order[place];
    const headPx = this.#table.tHead.offsetHeight;
    const top = place * ROW_PX;
    const room = this.#box.clientHeight - headPx - ROW_PX;
    if (top < this.#box.scrollTop) this.#box.scrollTop = top;
    else if (top > this.#box.scrollTop + room) this.#box.scrollTop = top - room;
    this.#show();
    this.#rows
      .find((one) => one.node.dataset.id === this.#active)
      ?.node.focus({ preventScroll: true });
  }
}

/** Draws bandwidths, from 0 to the highest of them. */
function sparkline(values) {
  const most = Math.max(1, ...values.filter((one) => !Number.isNaN(one)));
  let d = "";
  let isDown = false;
  values.forEach((value, x) => {
    if (!Number.isNaN(value))
      d += `${isDown ? "L" : "M"}${x} ${(SPARK_PX - 2 - ((SPARK_PX - 4) * value) / most).toFixed(1)}`;
    isDown = !Number.isNaN(value);
  });
  return d;
}
