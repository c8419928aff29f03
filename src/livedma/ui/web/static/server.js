// SPDX-License-Identifier: BSD-2-Clause
// Requests to the server besides the stream.

import { token } from "./token.js";

/** The request was refused, or did not come through. isToken: because of the token. */
export class Refused extends Error {
  constructor(message, isToken = false) {
    super(message);
    this.isToken = isToken;
  }
}

async function answered(address, how) {
  let response;
  try {
    response = await fetch(address, { cache: "no-store", ...how });
  } catch {
    throw new Refused("The server cannot be reached. Nothing is known of what became of this.");
  }
  const found = await response.json().catch(() => ({}));
  if (response.status === 401)
    throw new Refused("The server refused this token: nothing was done.", true);
  if (!response.ok || found.error)
    throw new Refused(found.error ?? `The server answers with ${response.status}.`);
  return found;
}

/** Returns why a session is slow: livedma.control.diagnose.why.Why. */
export const why = (session) => answered(`why?session=${encodeURIComponent(session)}`, {});

/** Acts, and returns in words what was done. */
export async function act(what, fields) {
  const found = await answered(`do/${what}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token()}` },
    body: JSON.stringify(fields),
  });
  return found.ok;
}
