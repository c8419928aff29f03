// SPDX-License-Identifier: BSD-2-Clause
// How slow a time is: against the p99 that the server's users want, else against the connection's
// usual time while nothing slows it. A sign and a colour show a level, never colour alone.

import { duration } from "./words.js";

const OF_WANTED = { slow: 0.8, very: 1 };
const OF_USUAL = { slow: 1.5, very: 3 };
const OF_WAITS = { slow: 0.1, very: 0.5 };

/** Returns {ns, isWanted} that a connection's times are compared with; null: there is none yet. */
export function reference(diagnosis) {
  const { wanted_p99_ms: wanted, usual_p99_ms: usual } = diagnosis?.evidence ?? {};
  if (wanted > 0) return { ns: wanted * 1e6, isWanted: true };
  return usual > 0 ? { ns: usual * 1e6, isWanted: false } : null;
}

function level(ns, against, bounds) {
  if (ns === null || ns === undefined || !against) return null;
  const part = ns / against.ns;
  if (part > bounds.very) return "very";
  return part > bounds.slow ? "slow" : null;
}

/** Returns "slow", "very" or null for a latency. */
export const ofLatency = (ns, against) =>
  level(ns, against, against?.isWanted ? OF_WANTED : OF_USUAL);

/** Does the same for the time that a call waits for memory. */
export const ofWait = (ns, against) => level(ns, against, OF_WAITS);

/** Returns the meaning of the levels, for people: [slow, very]. */
export function meanings(against) {
  if (against?.isWanted) {
    const wanted = duration(against.ns);
    return [`p99 over 80 % of the objective, ${wanted}`, `over the objective, ${wanted}`];
  }
  return ["over 1.5 × the usual p99 of its connection", "over 3 ×"];
}

export const WAITS = "A wait for memory counts from a tenth of that p99, and from half of it.";
