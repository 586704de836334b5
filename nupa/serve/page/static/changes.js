// SPDX-License-Identifier: BSD-3-Clause
// Changes: links down and up, faults added and cleared.

import { element, setText } from "./dom.js";
import { ask } from "./requests.js";

const HINTS = {
  probability: "such as 1%",
  count: "number of hits",
  after: "packets that pass first",
  duration: "such as 2ms",
  rate: "such as 10MB/s",
  seed: "a number",
  for: "such as 5s",
};

export class Changes {
  constructor(kinds, announcer) {
    this.kinds = kinds;
    this.announcer = announcer;
  }

  /** Returns the controls of a port. */
  forPort(port) {
    this.toggle = element("button", { type: "button", class: "act", onclick: () => this.setPort(port) });
    this.kind = element("select", { id: "fault-kind", onchange: () => this.showOptions() });
    for (const kind of Object.keys(this.kinds)) this.kind.append(element("option", { value: kind }, kind));
    this.what = element("p", { class: "small" });
    this.options = element("div", { class: "options" });
    this.answer = element("p", { class: "answer", role: "status" });
    this.showOptions();
    const form = element(
      "form",
      {
        class: "fault-form",
        "aria-label": `Add a fault to ${port}`,
        onsubmit: (event) => {
          event.preventDefault();
          this.addFault(port);
        },
      },
      element("label", { for: "fault-kind" }, "Fault"),
      this.kind,
      this.what,
      this.options,
      element("button", { type: "submit", class: "act" }, "Add fault"),
    );
    const more = element("details", {}, element("summary", {}, "Add a fault"), form);
    return element("div", { class: "changes" }, this.toggle, more, this.answer);
  }

  /** Names the button by the state of the port. */
  update(port, state) {
    this.isUp = state.ports.get(port)?.state === "ACTIVE";
    setText(this.toggle, this.isUp ? "Take port down" : "Take port up");
  }

  showOptions() {
    const { what, options } = this.kinds[this.kind.value];
    setText(this.what, what);
    this.options.replaceChildren(
      ...options.map((name) =>
        element(
          "label",
          {},
          name,
          element("input", { name, type: "text", autocomplete: "off", placeholder: HINTS[name] ?? "" }),
        ),
      ),
    );
  }

  async setPort(port) {
    const up = !this.isUp;
    await this.act(`${port} goes ${up ? "up" : "down"}`, () => ask("/live/port", "POST", { port, up }));
  }

  async addFault(port) {
    const options = {};
    for (const input of this.options.querySelectorAll("input")) {
      if (input.value.trim()) options[input.name] = input.value.trim();
    }
    const kind = this.kind.value;
    await this.act(`${kind} was added to ${port}`, () => ask("/live/fault", "POST", { port, kind, options }));
  }

  /** Returns the button that clears a fault. */
  clearButton(fault) {
    return element(
      "button",
      {
        type: "button",
        class: "act",
        "aria-label": `Clear fault ${fault.id}`,
        onclick: () => this.act(`fault ${fault.id} was cleared`, () => ask(`/live/fault/${fault.id}`, "DELETE")),
      },
      "Clear",
    );
  }

  async act(done, request) {
    let text = done;
    try {
      await request();
      this.announcer.say(done);
    } catch (error) {
      text = error.message;
      this.announcer.say(`not done: ${text}`);
    }
    if (this.answer) setText(this.answer, text);
  }
}
