// SPDX-License-Identifier: BSD-2-Clause
// Figures for people, in the form of livedma.control.words: three digits, and the unit that makes
// them readable.

export const UNKNOWN = "–";

const SIZES = [
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
];
const RATES = [
  [1e9, "GB/s"],
  [1e6, "MB/s"],
  [1e3, "kB/s"],
];
const DURATIONS = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "us"],
];

function scaled(value, units, smallest) {
  if (value === null || value === undefined || Number.isNaN(value)) return UNKNOWN;
  const [factor, unit] = units.find(([least]) => Math.abs(value) >= least) ?? [1, smallest];
  const found = value / factor;
  return `${found.toFixed(Number.isInteger(found) || Math.abs(found) >= 100 ? 0 : 1)} ${unit}`;
}

export const size = (bytes) => scaled(bytes, SIZES, "bytes");
export const rate = (bytesPerS) => scaled(bytesPerS, RATES, "B/s");
export const duration = (ns) => scaled(ns, DURATIONS, "ns");

const WHOLE = new Intl.NumberFormat("en-US"); // made once: making one takes longer than using it

/** Returns 12,345. */
export function count(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return UNKNOWN;
  return WHOLE.format(Math.round(value));
}

/** Returns 24 % for 0.24. */
export const percent = (part) =>
  part === null || part === undefined ? UNKNOWN : `${(100 * part).toFixed(0)} %`;

export function amount(value, word) {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}

const two = (value) => String(value).padStart(2, "0");

/** Returns 20:14:03, by the local clock. */
export function clock(wallS) {
  const at = new Date(wallS * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Returns 12 min, 3 h 20 min, 2 d 4 h. */
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
