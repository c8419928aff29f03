// SPDX-License-Identifier: BSD-2-Clause
// The columns of the table of sessions.

import { ofLatency, ofWait } from "./slow.js";
import { latency, rates, waitOf } from "./state.js";
import { UNKNOWN, count, duration, rate } from "./words.js";

/**
 * key, label, hint; value(session, intervalS): what it is sorted by, null if it is unknown;
 * text(...): what is shown. down: the most comes first. level(session, against): how slow it is.
 */
export const COLUMNS = [
  {
    key: "id",
    label: "Session",
    hint: "the beginning of its id",
    isWord: true,
    value: (one) => one.id,
    text: (one, intervalS, digits) => one.id.slice(0, digits),
  },
  {
    key: "connection",
    label: "Conn.",
    hint: "connections that it uses",
    value: (one) => one.connections[0] ?? null,
    text: (one) => one.connections.join(", ") || UNKNOWN,
  },
  {
    key: "bandwidth",
    label: "Bandwidth",
    hint: "reads and writes",
    down: true,
    value: (one, intervalS) => rates(one, intervalS).bytesPerS,
    text: (one, intervalS) => rate(rates(one, intervalS).bytesPerS),
  },
  { key: "spark", label: "30 s", hint: "bandwidth of the last 30 s; amber and red as p99 is" },
  {
    key: "operations",
    label: "Ops/s",
    hint: "operations a second",
    down: true,
    value: (one, intervalS) => rates(one, intervalS).operationsPerS,
    text: (one, intervalS) => count(rates(one, intervalS).operationsPerS),
  },
  {
    key: "p50",
    label: "p50",
    hint: "half of the calls took no longer",
    down: true,
    value: (one) => latency(one, "p50_ns"),
    text: (one) => duration(latency(one, "p50_ns")),
    level: (one, against) => ofLatency(latency(one, "p50_ns"), against),
  },
  {
    key: "p99",
    label: "p99",
    hint: "99 of 100 calls took no longer",
    down: true,
    value: (one) => latency(one, "p99_ns"),
    text: (one) => duration(latency(one, "p99_ns")),
    level: (one, against) => ofLatency(latency(one, "p99_ns"), against),
  },
  {
    key: "wait",
    label: "Waits",
    hint: "each call for DMA memory, on average",
    down: true,
    value: waitOf,
    text: (one) => duration(waitOf(one)),
    level: (one, against) => ofWait(waitOf(one), against),
  },
  {
    key: "slots",
    label: "Slots",
    hint: "most that were in use at a time, of those that it has",
    down: true,
    value: (one) => one.inside?.slots_used_most ?? null,
    text: (one) =>
      one.inside ? `${count(one.inside.slots_used_most)}/${count(one.inside.slots)}` : UNKNOWN,
  },
  {
    key: "flight",
    label: "In flight",
    hint: "calls just now",
    down: true,
    value: (one) => one.in_flight,
    text: (one) => count(one.in_flight),
  },
];

/** Sorts by a column; unknown values are last either way. */
export function sorted(sessions, column, isDown, intervalS) {
  const keys = new Map(sessions.map((one) => [one, column.value(one, intervalS)]));
  return [...sessions].sort((one, other) => {
    const [a, b] = [keys.get(one), keys.get(other)];
    if (a === b) return one.id < other.id ? -1 : 1;
    if (a === null || b === null) return a === null ? 1 : -1;
    return (a < b ? -1 : 1) * (isDown ? -1 : 1);
  });
}

/** Returns how many digits of the ids tell them apart; at least 8. */
export function digitsFor(sessions) {
  const ids = sessions.map((one) => one.id).sort();
  let digits = 8;
  for (let place = 1; place < ids.length; place += 1) {
    const [a, b] = [ids[place - 1], ids[place]];
    while (digits < a.length && a.slice(0, digits) === b.slice(0, digits)) digits += 1;
  }
  return digits;
}
