// SPDX-License-Identifier: BSD-3-Clause
// Tables that are sorted by a click on a heading, and filtered by text.

import { element, setAttribute, setText } from "../dom.js";
import { sayCount } from "../say.js";

export const ROWS_MAX = 200;

/** Compares cells: numbers by value, text as people sort it, host2 before host10. */
export function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** Returns the rows whose text has all words of *filter*. */
export function filtered(rows, columns, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  return rows.filter((row) => {
    const text = columns.map((column) => textOf(column, row)).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/** Returns the rows by a column, stable; *down*: the largest first. */
export function sorted(rows, column, down) {
  const sign = down ? -1 : 1;
  return [...rows].sort((p, q) => sign * compare(column.of(p), column.of(q)));
}

function textOf(column, row) {
  const value = column.of(row);
  if (value === null || value === undefined) return "";
  return column.say ? column.say(value, row) : String(value);
}

/**
 * A table.  Columns: {name, of(row), say(value, row), number, code, button}.  *button*(row) returns
 * an element that stays with its row.  *key*(row) names a row.
 */
export class Table {
  constructor(caption, columns, key, { note = "", choose = null } = {}) {
    Object.assign(this, { columns, key, choose, rows: [], filter: "", down: false });
    this.by = columns[0];
    this.byKey = new Map();
    this.heads = columns.map((column) => this.head(column));
    this.body = element("tbody");
    this.more = element("p", { class: "more", hidden: true });
    this.empty = element("p", { class: "empty" }, note || `No ${caption.toLowerCase()}.`);
    this.table = element(
      "table",
      {},
      element("caption", { class: "unseen" }, caption),
      element("thead", {}, element("tr", {}, ...this.heads)),
      this.body,
    );
    const scroll = element("div", { class: "scroll" }, this.table);
    this.node = element("div", { class: "table" }, scroll, this.empty, this.more);
  }

  head(column) {
    if (!column.name) return element("td");
    const button = element(
      "button",
      { type: "button", onclick: () => this.sortBy(column) },
      column.name,
      element("span", { class: "arrow", "aria-hidden": "true" }),
    );
    return element("th", { scope: "col", class: column.number ? "number" : null }, button);
  }

  sortBy(column) {
    this.down = this.by === column ? !this.down : Boolean(column.number);
    this.by = column;
    this.show();
  }

  update(rows) {
    this.rows = rows;
    this.show();
  }

  setFilter(filter) {
    this.filter = filter;
    this.show();
  }

  setNote(note) {
    setText(this.empty, note);
  }

  show() {
    const found = sorted(filtered(this.rows, this.columns, this.filter), this.by, this.down);
    this.columns.forEach((column, at) => {
      const order = column === this.by && column.name ? (this.down ? "descending" : "ascending") : null;
      setAttribute(this.heads[at], "aria-sort", order);
    });
    const shown = found.slice(0, ROWS_MAX);
    const before = this.byKey;
    this.byKey = new Map();
    const nodes = shown.map((row) => {
      const key = String(this.key(row));
      const node = before.get(key) ?? this.row(row);
      this.byKey.set(key, node);
      this.fill(node, row);
      return node;
    });
    // Rows that stay keep their place, and so the focus in them.
    nodes.forEach((node, at) => {
      if (this.body.children[at] !== node) this.body.insertBefore(node, this.body.children[at] ?? null);
    });
    while (this.body.children.length > nodes.length) this.body.lastChild.remove();
    const left = found.length - shown.length;
    this.more.hidden = left <= 0;
    setText(this.more, left > 0 ? `… and ${sayCount(left)} more; a filter finds them` : "");
    this.empty.hidden = found.length > 0;
    this.table.hidden = this.rows.length === 0;
  }

  row(row) {
    const cells = this.columns.map((column, at) => {
      const kind = [column.number ? "number" : "", column.code ? "code" : ""].join(" ").trim();
      const cell = element(at === 0 ? "th" : "td", { class: kind || null, scope: at === 0 ? "row" : null });
      if (column.button) cell.append(column.button(row));
      else if (at === 0 && this.choose) {
        const key = row;
        cell.append(element("button", { type: "button", class: "plain", onclick: () => this.choose(key) }));
      }
      return cell;
    });
    return element("tr", { "data-key": this.key(row) }, ...cells);
  }

  fill(node, row) {
    this.columns.forEach((column, at) => {
      if (column.button) return;
      const cell = node.children[at];
      setText(cell.querySelector("button") ?? cell, textOf(column, row));
      if (column.mark) setAttribute(cell, "data-mark", column.mark(row));
    });
  }
}
