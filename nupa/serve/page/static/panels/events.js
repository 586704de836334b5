// SPDX-License-Identifier: BSD-3-Clause
// The event log, and the line that a screen reader speaks.

import { byId, element } from "../dom.js";
import { sayClock, sayMany } from "../say.js";

const ROWS_MAX = 200;
const APART_MS = 1500;
const MARKS = { ok: "●", warning: "▲", critical: "■" };

/** Says what happened, a sentence at a time: a flood becomes one sentence. */
export class Announcer {
  constructor(node) {
    this.node = node;
    this.waiting = [];
    this.timer = 0;
  }

  say(text) {
    this.waiting.push(text);
    this.timer ||= setTimeout(() => this.speak(), 50);
  }

  speak() {
    const texts = this.waiting.splice(0);
    this.timer = 0;
    if (!texts.length) return;
    const latest = texts[texts.length - 1];
    this.node.textContent = texts.length === 1 ? latest : `${sayMany(texts.length, "event")}; ${latest}`;
    this.timer = setTimeout(() => this.speak(), APART_MS);
  }
}

export class EventLog {
  constructor(announcer) {
    this.announcer = announcer;
    this.list = byId("events");
    this.none = byId("no-events");
    this.count = byId("event-count");
    this.total = 0;
    this.started = false;
  }

  /** Says that so many events came too fast to be shown. */
  missed(count) {
    this.put(element("li", { class: "missed" }, `${sayMany(count, "event")} not shown: nupa events has them`));
  }

  put(item) {
    this.list.prepend(item);
    if (this.list.children.length > ROWS_MAX) this.list.lastChild.remove();
  }

  /** Adds an event; *quiet*: from before the page was opened. */
  add(event, quiet = false) {
    const severity = event.severity in MARKS ? event.severity : "ok";
    const text = event.text || event.kind;
    const isNamed = !event.subject || text.includes(event.subject);
    const told = isNamed ? text : `${event.subject}: ${text}`;
    const item = element(
      "li",
      { class: `event ${severity}`, "data-seq": event.seq, "data-kind": event.kind },
      element("span", { class: "mark", "aria-hidden": "true" }, MARKS[severity]),
      element("time", {}, sayClock(event.time_ns)),
      element("span", { class: "kind" }, event.kind),
      element("span", { class: "severity" }, severity === "ok" ? "" : severity),
      element("span", { class: "text" }, told),
    );
    this.put(item);
    this.total += 1;
    this.none.hidden = true;
    this.count.textContent = String(this.total);
    if (!quiet) this.announcer.say(`${severity}: ${told}`);
  }
}
