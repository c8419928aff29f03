// SPDX-License-Identifier: BSD-2-Clause
// One stream of server-sent events, which is opened again whenever it ends.

const FIRST_MS = 1000;
const MOST_MS = 10_000;

/** handlers: hello, frame, decision (each gets what was sent) and state ("live" or "lost"). */
export function follow(address, handlers) {
  let waitMs = FIRST_MS;

  function open() {
    const source = new EventSource(address);
    for (const name of ["hello", "frame", "decision"]) {
      source.addEventListener(name, (message) => {
        if (name === "hello") {
          waitMs = FIRST_MS;
          handlers.state("live");
        }
        handlers[name](JSON.parse(message.data));
      });
    }
    // Browsers differ in when they try again, and after an HTTP error none of them does.
    source.addEventListener("error", () => {
      source.close();
      handlers.state("lost");
      setTimeout(open, waitMs);
      waitMs = Math.min(2 * waitMs, MOST_MS);
    });
  }

  open();
}
