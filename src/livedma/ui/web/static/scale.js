// SPDX-License-Identifier: BSD-2-Clause
// Axes: the positions of their marks, so that people can read them.

const DECIMAL = [1, 2, 2.5, 5, 10];

/** Returns 1, 2, 2.5 or 5 times a power of ten; at most `count` of them reach `most`. */
export function decimalStep(most, count) {
  const rough = most / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * DECIMAL.find((one) => one * power >= rough * (1 - 1e-9));
}

export function binaryStep(most, count) {
  return 2 ** Math.ceil(Math.log2(most / count));
}

/** Returns the marks of an axis from 0 that reaches at least `most`. */
export function marks(most, step) {
  const found = [];
  for (let value = 0; found.length < 2 || found.at(-1) < most * (1 - 1e-9); value += step)
    found.push(value);
  return found;
}

const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];

/** Returns the seconds between marks of an axis of time, with at most so many marks on it. */
export const timeStep = (spanS, count) => TIMES.find((one) => spanS / one <= count) ?? TIMES.at(-1);
