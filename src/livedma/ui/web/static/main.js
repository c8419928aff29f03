// SPDX-License-Identifier: BSD-2-Clause
// The page: what the stream tells is kept in one state, and drawn once for each frame.

import { Actions } from "./actions.js";
import { Connections } from "./connections.js";
import { Decisions } from "./decisions.js";
import { put, say } from "./dom.js";
import { Facts } from "./facts.js";
import { cue } from "./scroll.js";
import { Sessions } from "./sessions.js";
import { State } from "./state.js";
import { follow } from "./stream.js";
import { TimeLines } from "./timelines.js";
import { fromAddress, token } from "./token.js";
import { WhyDialog } from "./why.js";
import { WindowDrawing } from "./window.js";
import { clock, span } from "./words.js";

const OLD_MS = 3000; // frames come twice a second
const SAID_MS = 8000;

const byId = (id) => document.getElementById(id);

fromAddress();
const state = new State();
let chosen = null;
let isPicked = false; // by a person, not by the page
let isDue = false;
let heardMs = performance.now();
let isLost = false;

const actions = new Actions(byId("ask"), (number) => state.connection(number), done);
const why = new WhyDialog(byId("why"));
const facts = new Facts(
  byId("facts"),
  byId("server"),
  () => state.frame && actions.policy(state.frame),
);
const connections = new Connections(byId("connections"), pick, (what, number) =>
  actions[what](number),
);
const timeLines = new TimeLines(byId("lines"));
const windowDrawing = new WindowDrawing(byId("window"));
const decisions = new Decisions(byId("decisions"));
const sessions = new Sessions(byId("sessions"), (id) => why.open(id));

const cues = [byId("connections"), byId("log")].map(cue);

byId("token").addEventListener("click", () => actions.token());
sayToken();

function sayToken() {
  say(byId("token"), token() ? "Token: kept" : "Token: none");
  put(
    byId("token"),
    "aria-label",
    token()
      ? "This tab has a token and may act: change that"
      : "This tab has no token and only reads: give one",
  );
}

function done(text) {
  sayToken();
  const said = byId("said");
  say(said, text);
  clearTimeout(done.timer);
  done.timer = setTimeout(() => say(said, ""), SAID_MS);
}

function pick(number) {
  chosen = number;
  isPicked = true;
  drawSoon();
}

/** Keeps a person's choice while it exists; else chooses a slow connection, else the first. */
function choose() {
  const there = state.frame.snapshot.connections.map((one) => one.number);
  if (there.includes(chosen) && isPicked) return;
  isPicked = false;
  if (there.includes(chosen) && state.diagnosis(chosen)?.is_degraded) return;
  const slow = state.frame.diagnoses.find(
    (one) => one.is_degraded && there.includes(one.connection),
  );
  if (slow) chosen = slow.connection;
  else if (!there.includes(chosen)) chosen = there.length ? Math.min(...there) : null;
}

function drawSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(draw);
}

function draw() {
  isDue = false;
  decisions.draw(state.events);
  const { frame } = state;
  if (!frame) return;
  choose();
  document.title = Facts.title(frame);
  facts.draw(frame, state.totals());
  connections.draw(state, chosen);
  say(byId("connections-count"), Connections.count(frame));
  timeLines.draw(state, chosen);
  windowDrawing.draw(chosen, state.window(chosen));
  sessions.draw(state);
  actions.draw();
  for (const look of cues) look();
  document.body.dataset.frame = frame.number;
}

/** Says whether the picture is live; its age changes, and is not read out each time. */
function sayAge() {
  const { frame } = state;
  const ageMs = performance.now() - heardMs;
  let [name, word, trouble] = frame
    ? ["live", "live", ""]
    : ["wait", "waiting for the first picture", ""];
  if (isLost) {
    [name, word, trouble] = [
      "lost",
      "connection lost, trying again",
      "The connection to the server is lost; it is tried again by itself.",
    ];
  } else if (frame && ageMs > OLD_MS) {
    [name, word, trouble] = [
      "lost",
      "no news",
      "The server sends nothing, though the connection is there.",
    ];
  }
  byId("live").dataset.state = name;
  say(byId("live"), word);
  say(byId("trouble"), trouble);
  say(
    byId("age"),
    trouble && frame
      ? `What is shown is of ${clock(frame.snapshot.wall_s)}, ${span(ageMs / 1000)} ago.`
      : "",
  );
  byId("old").hidden = !trouble;
  put(document.body, "data-old", Boolean(trouble));
}

follow("stream", {
  state(name) {
    isLost = name === "lost";
    sayAge();
  },
  hello(found) {
    decisions.forget();
    state.hello(found);
    heard();
  },
  frame(found) {
    state.take(found);
    heard();
  },
  decision(found) {
    state.tell(found);
    drawSoon();
  },
});

function heard() {
  heardMs = performance.now();
  sayAge();
  drawSoon();
}

setInterval(sayAge, 1000);
