// SPDX-License-Identifier: BSD-2-Clause
// The actions of people on a live server. Each asks first and says what will happen; the server
// decides whether it may.

import { make, put, say } from "./dom.js";
import { act } from "./server.js";
import { keep, token } from "./token.js";
import { count, size } from "./words.js";

const MIB = 2 ** 20;
const POLICIES = {
  static: "Nothing is changed, whatever is short: what the others are measured against.",
  extend:
    "Where DMA memory is short, the next part of the same window is mapped; credits and slots grow with it. Nothing moves.",
  spread:
    "Where DMA memory is short, the client is asked for another connection, where its new sessions go.",
  migrate:
    "Where DMA memory is short, the client is asked for a larger connection, and moves its sessions there. A client that cannot be asked, such as the kernel's, is extended; if its window is full and calls wait long, it is cut, and comes back to a larger connection.",
};

export class Actions {
  #dialog;
  #find;
  #done;
  #form = make("form", { method: "dialog" });
  #title = make("h2", { id: "ask-title" });
  #body = make("div");
  #token = make("input", {
    type: "password",
    id: "ask-token",
    autocomplete: "off",
    spellcheck: "false",
  });
  #tokenRow;
  #error = make("p", { class: "wrong", role: "alert" });
  #cancel;
  #go = make("button", { type: "submit", class: "primary" });
  #submit = null;
  #describe = null;
  #isBusy = false;

  /** find(number) returns a connection's present state. done(text) is called with what was done. */
  constructor(dialog, find, done) {
    this.#dialog = dialog;
    this.#find = find;
    this.#done = done;
    const help = make("small", {
      id: "ask-token-help",
      text: "The server prints it when it starts, behind #token= in the page's address; it is also in the file beside its control socket.",
    });
    put(this.#token, "aria-describedby", "ask-token-help");
    this.#tokenRow = make(
      "p",
      { class: "field" },
      make("label", { for: "ask-token", text: "Token" }),
      this.#token,
      help,
    );
    this.#cancel = make("button", {
      type: "button",
      text: "Cancel",
      on: { click: () => dialog.close() },
    });
    this.#form.append(
      this.#title,
      this.#body,
      this.#tokenRow,
      this.#error,
      make("div", { class: "buttons" }, this.#cancel, this.#go),
    );
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    dialog.append(this.#form);
  }

  #ask(title, verb, body, submit) {
    say(this.#title, title);
    say(this.#go, verb);
    say(this.#error, "");
    this.#go.disabled = false;
    this.#body.replaceChildren(...body);
    this.#token.value = "";
    this.#tokenRow.hidden = token() !== "";
    this.#submit = submit;
    this.#describe = null;
    this.#dialog.showModal();
  }

  async #send() {
    if (!this.#tokenRow.hidden) {
      if (!this.#token.value.trim()) {
        say(this.#error, "A change needs the server's token.");
        this.#token.focus();
        return;
      }
      keep(this.#token.value);
    }
    say(this.#error, "");
    this.#go.disabled = this.#isBusy = true;
    try {
      const text = await this.#submit();
      this.#dialog.close();
      this.#done(text);
    } catch (error) {
      if (error.isToken) {
        keep("");
        this.#tokenRow.hidden = false;
        this.#token.focus();
      }
      say(this.#error, error.message);
    } finally {
      this.#go.disabled = this.#isBusy = false;
    }
  }

  policy(frame) {
    const choices = Object.entries(POLICIES).map(([name, text]) =>
      make(
        "label",
        { class: "option" },
        make("input", {
          type: "radio",
          name: "policy",
          value: name,
          checked: name === frame.policy,
        }),
        make(
          "span",
          {},
          make("b", { text: name === frame.policy ? `${name} (now)` : name }),
          make("small", { text }),
        ),
      ),
    );
    const note = frame.dry_run
      ? "This is a dry run: whichever it is, it only says what it would do."
      : "It holds until it is changed again, or the server ends. The change itself moves nothing.";
    const fields = make(
      "fieldset",
      {},
      make("legend", { text: "What the controller does from now on" }),
      ...choices,
    );
    this.#ask(
      "Change the policy?",
      "Change the policy",
      [fields, make("p", { class: "soft", text: note })],
      () => act("policy", { name: fields.querySelector(":checked").value }),
    );
  }

  extend(number) {
    const inside = this.#find(number)?.inside;
    if (!inside) return; // the connection has just ended
    if (!inside.room_bytes) {
      this.#tell(
        `Connection ${number} cannot be extended`,
        `Its window of ${size(inside.window_bytes)} has no room for another part.`,
      );
      return;
    }
    this.#bytes({
      what: "extend",
      number,
      title: `Extend connection ${number}?`,
      label: "More memory for data, in MiB",
      first: Math.min(inside.first_bytes, inside.room_bytes),
      most: (now) => now.room_bytes,
      verb: (bytes) => `Map ${size(bytes)} more`,
      says: (bytes, now) => [
        `${size(bytes)} more of its window get memory: ${size(now.mapped_bytes)} of ${size(now.window_bytes)} have it now, and there is room for ${size(now.room_bytes)} of data.`,
        `Buffers grow from ${count(now.buffers)} by about ${count(bytes / now.buffer_bytes)}, and credits with them, as far as the client has asked for some. No session is interrupted.`,
        "The policy may give back what is not used.",
      ],
    });
  }

  shrink(number) {
    const inside = this.#find(number)?.inside;
    if (!inside) return;
    const data = (now) => now.buffers * now.buffer_bytes;
    this.#bytes({
      what: "shrink",
      number,
      title: `Shrink connection ${number}?`,
      label: "Memory to give back, in MiB",
      first: Math.min(inside.first_bytes, data(inside) / 2),
      most: data,
      verb: (bytes) => `Give ${size(bytes)} back`,
      says: (bytes, now) => [
        `Up to ${size(bytes)} of the ${size(data(now))} for data lose their memory as their buffers become free, in whole parts of the window. Nothing that is in use is touched.`,
        `${count(now.buffers_taken)} of ${count(now.buffers)} buffers are in use. Credits stay as they are: calls may have to wait for buffers then.`,
        "The policy may map it again as soon as it is short.",
      ],
    });
  }

  /** Asks how many bytes, and says with the present figures what that means. */
  #bytes({ what, number, title, label, first, most, verb, says }) {
    const chosen = () => Math.round(Number(input.value) * MIB);
    const input = make("input", {
      type: "number",
      id: "ask-bytes",
      min: 1 / 1024,
      step: "any",
      required: true,
      value: first / MIB,
    });
    const list = make("ul");
    const field = make(
      "p",
      { class: "field" },
      make("label", { for: "ask-bytes", text: label }),
      input,
    );
    const describe = () => {
      const now = this.#find(number)?.inside;
      if (now) put(input, "max", most(now) / MIB);
      const isGood = Boolean(now) && input.checkValidity();
      this.#go.disabled = !isGood;
      if (isGood) say(this.#go, verb(chosen()));
      const texts = isGood
        ? says(chosen(), now)
        : [
            now
              ? `A number from 0 to ${(most(now) / MIB).toFixed(1)} is needed here.`
              : "The connection has ended.",
          ];
      while (list.children.length > texts.length) list.lastChild.remove();
      while (list.children.length < texts.length) list.append(make("li"));
      texts.forEach((text, place) => say(list.children[place], text));
    };
    input.addEventListener("input", describe);
    this.#ask(title, verb(first), [field, list], () =>
      act(what, { connection: number, bytes: chosen() }),
    );
    this.#describe = describe;
    describe();
  }

  /** Draws again after a new frame. */
  draw() {
    if (this.#dialog.open && !this.#isBusy) this.#describe?.();
  }

  #tell(title, text) {
    this.#ask(title, "Understood", [make("p", { text })], () => Promise.resolve(""));
    this.#tokenRow.hidden = true;
  }

  /** Asks for the token itself: it can be typed in, or forgotten. */
  token() {
    const now = token()
      ? "This tab has a token and may change the policy, and extend or shrink connections."
      : "Without a token this page only reads.";
    const forget = make("button", {
      type: "button",
      class: "small",
      text: "Forget it",
      on: {
        click: () => (
          keep(""),
          this.#dialog.close(),
          this.#done("This tab only reads from now on.")
        ),
      },
    });
    this.#ask("Token", "Keep it", [make("p", { text: now }), ...(token() ? [forget] : [])], () =>
      Promise.resolve(
        "It is kept as long as this tab is; the server checks it when something is done.",
      ),
    );
    this.#tokenRow.hidden = false;
  }
}
