// SPDX-License-Identifier: BSD-3-Clause
// Tabs: arrow keys move between them, and the address keeps the chosen one.

import { element, setAttribute, setText } from "../dom.js";

export class Tabs {
  /** Tabs: {id, name, node, shown(), hidden()}. */
  constructor(list, panels, tabs) {
    this.tabs = tabs;
    for (const tab of tabs) {
      tab.count = element("span", { class: "count" });
      tab.button = element(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${tab.id}`,
          "aria-controls": `panel-${tab.id}`,
          onclick: () => this.choose(tab),
        },
        tab.name,
        tab.count,
      );
      tab.panel = element(
        "div",
        { role: "tabpanel", id: `panel-${tab.id}`, "aria-labelledby": `tab-${tab.id}`, hidden: true },
        tab.node,
      );
      list.append(tab.button);
      panels.append(tab.panel);
    }
    list.addEventListener("keydown", (event) => this.key(event));
    const asked = tabs.find((tab) => `#${tab.id}` === location.hash);
    this.choose(asked ?? tabs[0]);
  }

  choose(chosen) {
    const before = this.current;
    this.current = chosen;
    for (const tab of this.tabs) {
      setAttribute(tab.button, "aria-selected", tab === chosen ? "true" : "false");
      setAttribute(tab.button, "tabindex", tab === chosen ? "0" : "-1");
      tab.panel.hidden = tab !== chosen;
    }
    if (before === chosen) return;
    before?.hidden?.();
    chosen.shown?.();
    if (before) history.replaceState(null, "", `#${chosen.id}`);
  }

  chooseId(id) {
    this.choose(this.tabs.find((tab) => tab.id === id));
  }

  setCount(id, count) {
    setText(this.tabs.find((tab) => tab.id === id).count, count === null ? "" : String(count));
  }

  key(event) {
    const at = this.tabs.indexOf(this.current);
    const last = this.tabs.length - 1;
    const next = {
      ArrowRight: at === last ? 0 : at + 1,
      ArrowLeft: at === 0 ? last : at - 1,
      Home: 0,
      End: last,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    this.choose(this.tabs[next]);
    this.tabs[next].button.focus();
  }
}
