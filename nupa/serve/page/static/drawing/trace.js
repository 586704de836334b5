// SPDX-License-Identifier: BSD-3-Clause
// Transfers of a recording, and one of them as a sequence diagram.

import { TRANSFERS } from "../panels/columns.js";
import { drawn, element, setText } from "../dom.js";
import { ask } from "../requests.js";
import { sayDuration, sayMany } from "../say.js";
import { Table } from "../panels/tables.js";

const TIME = 86; // room of the times, left of the actors
const ACTOR = { min: 190, width: 150, height: 40 };
const ROW = 40;
const HEAD = 62;
const CHAR = 6.5;

export class Traces {
  constructor(announcer) {
    this.announcer = announcer;
    this.button = element("button", { type: "button", class: "act", onclick: () => this.record() }, "Record one second");
    this.status = element("span", { class: "small", role: "status" });
    this.table = new Table("Transfers", TRANSFERS, (row) => row.number, {
      note: "A recording shows what happens to each transfer: doorbells, packets, completions.",
      choose: (row) => this.draw(row.number),
    });
    this.diagram = element("div", { class: "diagram", hidden: true });
    this.node = element(
      "div",
      { class: "traces" },
      element("p", { class: "tools" }, this.button, this.status),
      this.diagram,
      this.table.node,
    );
  }

  async record() {
    this.button.disabled = true;
    setText(this.status, "recording…");
    try {
      this.list(await ask("/live/trace", "POST"));
      this.announcer.say(this.status.textContent);
    } catch (error) {
      setText(this.status, error.message);
    }
    this.button.disabled = false;
  }

  list(found) {
    const lost = found.lost ? `, ${sayMany(found.lost, "record")} lost` : "";
    const shown = found.total > found.transfers.length ? `, the first ${found.transfers.length} shown` : "";
    setText(
      this.status,
      `${sayMany(found.packets, "packet")}, ${sayMany(found.total, "transfer")}${shown}${lost}`,
    );
    this.table.update(found.transfers);
    this.table.setNote("Nothing crossed the fabric.");
    this.diagram.hidden = true;
  }

  async draw(number) {
    try {
      const found = await ask(`/live/trace/${number}`);
      const title = element("h3", { tabindex: "-1" }, found.title);
      const close = element("button", { type: "button", class: "act", onclick: () => this.close() }, "Close diagram");
      this.diagram.replaceChildren(
        element("div", { class: "tools" }, title, close),
        element("p", { class: "small" }, found.subtitle),
        element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Sequence diagram" }, sequence(found)),
        asList(found),
        ...notes(found).map((note) => element("p", { class: "small" }, note)),
      );
      this.diagram.hidden = false;
      title.focus();
    } catch (error) {
      setText(this.status, error.message);
    }
  }

  close() {
    this.diagram.hidden = true;
    this.button.focus();
  }
}

function notes(found) {
  const more = found.rows_left_out ? [`${sayMany(found.rows_left_out, "row")} more, not shown`] : [];
  return [...found.footnotes, ...more];
}

/** Returns the distance of actors: texts of rows have room between them. */
export function spacing(rows) {
  return rows.reduce((most, row) => {
    const apart = Math.max(1, Math.abs(row.target - row.source));
    const text = Math.max(row.label.length, row.detail.length * 0.92) * CHAR + 34;
    return Math.max(most, Math.min(420, text / apart));
  }, ACTOR.min);
}

/** Returns the drawing of a transfer. */
export function sequence({ actors, rows, title }) {
  const apart = spacing(rows);
  const x = actors.map((_, at) => TIME + ACTOR.width / 2 + at * apart);
  const width = x[x.length - 1] + Math.max(ACTOR.width / 2, apart * 0.9) + 10;
  const height = HEAD + rows.length * ROW + 24;
  const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  actors.forEach((actor, at) => {
    svg.append(
      drawn("line", { x1: x[at], x2: x[at], y1: ACTOR.height + 6, y2: height - 8, class: "life" }),
      drawn("rect", {
        x: x[at] - ACTOR.width / 2,
        y: 6,
        width: ACTOR.width,
        height: ACTOR.height,
        rx: 5,
        class: "bar",
      }),
      drawn("text", { x: x[at], y: 31, class: "name", "text-anchor": "middle" }, actor.name),
    );
  });
  rows.forEach((row, at) => svg.append(drawRow(row, HEAD + at * ROW + 18, x)));
  return svg;
}

function drawRow(row, y, x) {
  const kind = `arrow level-${row.level}${row.error || row.dropped ? " bad" : ""}${row.retry ? " retry" : ""}`;
  const group = drawn("g", { class: kind });
  group.append(drawn("text", { x: TIME - 12, y: y + 4, class: "small", "text-anchor": "end" }, sayDuration(row.time_ns)));
  const [from, to] = [x[row.source], x[row.target]];
  if (from === to) {
    group.append(
      drawn("circle", { cx: from, cy: y, r: 4, class: "dot" }),
      drawn("text", { x: from + 12, y: y - 1, class: "label" }, row.label),
      drawn("text", { x: from + 12, y: y + 12, class: "small" }, row.detail),
    );
    return group;
  }
  const way = to > from ? 1 : -1;
  const end = row.dropped ? to - way * 40 : to - way;
  group.append(
    drawn("line", { x1: from, x2: end - way * 7, y1: y, y2: y, class: "shaft" }),
    drawn("circle", { cx: from, cy: y, r: 2.5, class: "dot" }),
    row.dropped
      ? drawn("path", { d: `M${end - 6} ${y - 6}l12 12m0 -12l-12 12`, class: "shaft" })
      : drawn("path", { d: `M${end} ${y}l${-9 * way} -4.5v9z`, class: "dot" }),
    drawn("text", { x: (from + to) / 2, y: y - 6, class: "label", "text-anchor": "middle" }, row.label),
    drawn("text", { x: (from + to) / 2, y: y + 14, class: "small", "text-anchor": "middle" }, row.detail),
  );
  for (const place of row.seen) group.append(drawn("circle", { cx: x[place], cy: y, r: 3.5, class: "dot" }));
  return group;
}

/** Returns the same in words: a list, for those who do not see the drawing. */
function asList({ actors, rows }) {
  const items = rows.map((row) => {
    const [from, to] = [actors[row.source].name, actors[row.target].name];
    const where = from === to ? from : `${from} to ${to}`;
    const marks = [row.dropped ? "lost" : "", row.retry ? "sent again" : "", row.error ? "error" : ""];
    const texts = [sayDuration(row.time_ns), where, row.label, row.detail, ...marks];
    return element("li", {}, texts.filter(Boolean).join(", "));
  });
  return element("details", {}, element("summary", {}, "The diagram in words"), element("ol", {}, ...items));
}
