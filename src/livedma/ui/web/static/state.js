// SPDX-License-Identifier: BSD-2-Clause
// What the stream has told: the last frame, the last minutes and the last events, no more.

import { UNKNOWN } from "./words.js";

const KEPT = 1200; // frames: ten minutes, as the server keeps them
const EVENTS = 500;
export const SPARK = 60; // frames: half a minute
export const COLUMNS = ["bytes_per_s", "operations_per_s", "p99_ns", "mapped_bytes", "sessions"];

/** Returns rates over a frame's interval, of a connection or a session. */
export function rates(one, intervalS) {
  if (!(intervalS > 0)) return { bytesPerS: null, operationsPerS: null };
  const each = (...values) =>
    values.some((value) => value === null || value === undefined)
      ? null
      : values.reduce((a, b) => a + b) / intervalS;
  return {
    bytesPerS: each(one.read_bytes, one.written_bytes),
    operationsPerS: each(one.operations),
  };
}

/** Returns one of its latencies; null: there was none. */
export const latency = (one, name) => (one.latency?.count ? one.latency[name] : null);

/** Returns the address of a connection's client, and the name that it gives itself. */
export function clientOf({ client, client_port: port, client_qpn: queuePair, client_name: name }) {
  if (!client) return UNKNOWN;
  const host = client.includes(":") ? `[${client}]` : client;
  const end = port ? `${host}:${port}` : queuePair ? `${client} qp ${queuePair}` : client;
  return name ? `${end} (${name})` : end;
}

/** Returns how long a call waited for memory; null: it is unknown, or there was no call. */
export const waitOf = (session) =>
  session.inside && session.operations
    ? session.inside.memory_waited_ns / session.operations
    : null;

export class State {
  frame = null;
  version = "";
  events = [];
  at = [];
  /** Columns by connection, each as long as `at`. */
  lines = new Map();
  /** The clients, present or past, by connection. */
  clients = new Map();
  #sparks = new Map();
  #turn = 0;

  hello({ version, history, events, frame }) {
    this.version = version;
    this.events = events.slice(-EVENTS);
    this.at = history.at;
    this.lines = new Map(
      Object.entries(history.connections).map(([number, columns]) => [Number(number), columns]),
    );
    this.clients.clear();
    this.#sparks.clear();
    this.frame = null;
    if (frame) this.take(frame);
  }

  take(frame) {
    this.frame = frame;
    const { snapshot } = frame;
    const last = this.at.at(-1);
    if (last !== undefined && snapshot.wall_s < last) this.#forget(); // the clock was set
    if (snapshot.wall_s !== last) this.#append(snapshot);
    for (const one of snapshot.connections) this.clients.set(one.number, clientOf(one));
    this.#spark(snapshot);
  }

  tell(event) {
    if (this.events.length && event.number <= this.events.at(-1).number) return;
    this.events.push(event);
    if (this.events.length > EVENTS) this.events.shift();
  }

  diagnosis(connection) {
    return this.frame?.diagnoses.find((one) => one.connection === connection) ?? null;
  }

  window(connection) {
    return this.frame?.windows.find((one) => one.connection === connection) ?? null;
  }

  connection(number) {
    return this.frame?.snapshot.connections.find((one) => one.number === number) ?? null;
  }

  session(id) {
    return this.frame?.snapshot.sessions.find((one) => one.id === id) ?? null;
  }

  /** Returns the totals of all connections; null if they are unknown. */
  totals() {
    const { connections, interval_s: intervalS } = this.frame.snapshot;
    const found = connections.map((one) => rates(one, intervalS));
    const sum = (name) => {
      const known = found.map((one) => one[name]).filter((value) => value !== null);
      return known.length || !connections.length ? known.reduce((a, b) => a + b, 0) : null;
    };
    return { bytesPerS: sum("bytesPerS"), operationsPerS: sum("operationsPerS") };
  }

  /** Returns bandwidths of a session, the oldest first; NaN: it did not exist. */
  spark(id) {
    const values = this.#sparks.get(id);
    if (!values) return [];
    const begin = (this.#turn + 1) % SPARK;
    return [...values.subarray(begin), ...values.subarray(0, begin)];
  }

  #forget() {
    this.at = [];
    this.lines.clear();
    this.clients.clear();
  }

  #append(snapshot) {
    const points = new Map(
      snapshot.connections.map((one) => {
        const { bytesPerS, operationsPerS } = rates(one, snapshot.interval_s);
        const mapped = one.inside?.mapped_bytes ?? null;
        const p99 = one.latency?.p99_ns ?? null;
        return [one.number, [bytesPerS, operationsPerS, p99, mapped, one.sessions ?? 0]];
      }),
    );
    for (const number of points.keys()) {
      if (!this.lines.has(number)) {
        const empty = COLUMNS.map((name) => [name, this.at.map(() => null)]);
        this.lines.set(number, Object.fromEntries(empty));
      }
    }
    this.at.push(snapshot.wall_s);
    for (const [number, columns] of this.lines) {
      const point = points.get(number);
      COLUMNS.forEach((name, place) => columns[name].push(point ? point[place] : null));
    }
    while (this.at.length > KEPT) {
      this.at.shift();
      for (const columns of this.lines.values()) COLUMNS.forEach((name) => columns[name].shift());
    }
    for (const [number, { sessions }] of this.lines) {
      if (sessions.every((one) => one === null)) {
        this.lines.delete(number);
        this.clients.delete(number);
      }
    }
  }

  #spark(snapshot) {
    this.#turn = (this.#turn + 1) % SPARK;
    const there = new Map();
    for (const one of snapshot.sessions) {
      const values = this.#sparks.get(one.id) ?? new Float32Array(SPARK).fill(NaN);
      values[this.#turn] = rates(one, snapshot.interval_s).bytesPerS ?? NaN;
      there.set(one.id, values);
    }
    this.#sparks = there;
  }
}
