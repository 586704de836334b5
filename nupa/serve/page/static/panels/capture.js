// SPDX-License-Identifier: BSD-3-Clause
// The tail of a capture: asked for only while its tab is open.

import { element, setText } from "../dom.js";
import { ask } from "../requests.js";
import { sayMany } from "../say.js";

const ROWS_MAX = 300;
const EVERY_MS = 500;

export class CaptureTail {
  constructor() {
    this.last = 0;
    this.timer = 0;
    this.isFrozen = false;
    this.lines = element("ol", { class: "capture", "aria-label": "Packets", tabindex: "0" });
    this.status = element("span", { class: "small", role: "status" });
    this.freeze = element("button", { type: "button", class: "act", "aria-pressed": "false", onclick: () => this.toggle() }, "Freeze packets");
    const clear = element("button", { type: "button", class: "act", onclick: () => this.lines.replaceChildren() }, "Clear packets");
    this.node = element("div", {}, element("p", { class: "tools" }, this.freeze, clear, this.status), this.lines);
  }

  toggle() {
    this.isFrozen = !this.isFrozen;
    this.freeze.setAttribute("aria-pressed", String(this.isFrozen));
  }

  shown() {
    this.timer ||= setInterval(() => this.ask(), EVERY_MS);
    this.ask();
  }

  hidden() {
    clearInterval(this.timer);
    this.timer = 0;
  }

  async ask() {
    if (this.isFrozen || this.asking || document.hidden) return;
    this.asking = true;
    try {
      this.add(await ask(`/live/capture?after=${this.last}`));
    } catch (error) {
      setText(this.status, error.message);
    }
    this.asking = false;
  }

  add(found) {
    if (found.last < this.last) this.last = 0; // the server began anew
    const atEnd = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight < 30;
    const missed = found.lines.length ? found.lines[0][0] - this.last - 1 : 0;
    if (missed > 0 && this.last) this.lines.append(element("li", { class: "gap" }, `${sayMany(missed, "packet")} not shown`));
    for (const [, text] of found.lines) this.lines.append(element("li", {}, text));
    while (this.lines.children.length > ROWS_MAX) this.lines.firstChild.remove();
    this.last = found.last;
    if (atEnd) this.lines.scrollTop = this.lines.scrollHeight;
    const lost = found.lost ? `, ${sayMany(found.lost, "record")} lost` : "";
    setText(this.status, found.error || `${sayMany(found.seen, "packet")} seen${lost}`);
  }
}
