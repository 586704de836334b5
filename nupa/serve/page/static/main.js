// SPDX-License-Identifier: BSD-3-Clause
// The page: joins the stream with the drawing, the tables and the log.

import { CaptureTail } from "./panels/capture.js";
import { Changes } from "./changes.js";
import * as columns from "./panels/columns.js";
import { CxlPanel } from "./panels/cxl.js";
import { Details } from "./panels/details.js";
import { byId, element, setText } from "./dom.js";
import { Announcer, EventLog } from "./panels/events.js";
import { Feed } from "./feed.js";
import { Histories, LOADS } from "./rates.js";
import { ask } from "./requests.js";
import { sayClock, sayCount, sayRate } from "./say.js";
import { stateOf, summary } from "./state.js";
import { Table } from "./panels/tables.js";
import { Tabs } from "./panels/tabs.js";
import { startTheme } from "./theme.js";
import { Topology } from "./drawing/topology.js";
import { Traces } from "./drawing/trace.js";

const TENANTS_SHOWN = 16; // in the legend

class Page {
  constructor(about) {
    this.announcer = new Announcer(byId("announcer"));
    this.histories = new Histories();
    this.changes = about.may_change ? new Changes(about.fault_kinds, this.announcer) : null;
    this.log = new EventLog(this.announcer);
    this.details = new Details(byId("details"), { changes: this.changes, histories: this.histories });
    this.topology = new Topology(byId("drawing"), { select: (kind, id) => this.select(kind, id) });
    this.devices = new Map();
    this.updates = 0;
    this.isPaused = false;
    this.makeTables();
    setText(byId("version"), `NUPA ${about.version}`);
    byId("may-change").hidden = !about.may_change;
    byId("pause").addEventListener("click", () => this.pause());
    byId("filter").addEventListener("input", () => this.filter());
    makeLegend(byId("legend"));
    const opened = performance.timeOrigin + performance.now();
    this.feed = new Feed("/live/stream", {
      snapshot: (snapshot) => this.show(snapshot),
      event: (event) => this.log.add(event, event.time_ns / 1e6 < opened),
      missed: (count) => this.log.missed(count),
      trouble: (message) => this.trouble(message),
      state: (state) => this.connection(state),
    });
  }

  makeTables() {
    const now = () => this.state;
    const choose = (kind) => ({ choose: (row) => this.select(kind, row.name) });
    const clear = this.changes ? (fault) => this.changes.clearButton(fault) : null;
    const members = new Table("Members", columns.MEMBERS, (row) => `${row.partition} ${row.kind} ${row.member}`, {
      note: "No partition has members: all hosts are in the default partition.",
    });
    const tenants = new Table("Tenants", columns.TENANTS, (row) => row.name);
    const both = element("div", {}, element("h3", {}, "Tenants"), tenants.node, element("h3", {}, "Members of partitions"), members.node);
    this.cxl = new CxlPanel((devices) => this.setDevices(devices));
    this.capture = new CaptureTail();
    this.traces = new Traces(this.announcer);
    const table = (id, name, made, rows) => ({ id, name, node: made.node, tables: [[made, rows]] });
    const tabs = [
      table("hosts", "Hosts", new Table("Hosts", columns.hostColumns(now), (row) => row.name, choose("host")), (s) => s.hosts),
      table("ports", "Ports", new Table("Ports", columns.portColumns(now), (row) => row.name, choose("trunk")), (s) => s.ports),
      table("qps", "QPs", new Table("QPs", columns.QPS, (row) => `${row.host} ${row.pid} ${row.number}`), (s) => s.qps),
      table("mrs", "MRs", new Table("MRs", columns.MRS, (row) => `${row.host} ${row.pid} ${row.key}`), (s) => s.mrs),
      { id: "tenants", name: "Tenants", node: both, tables: [[tenants, columns.tenantRows], [members, columns.memberRows]] },
      table("faults", "Faults", new Table("Faults", columns.faultColumns(clear), (row) => row.id), (s) => s.faults),
      table("regions", "Regions", new Table("Regions", columns.REGIONS, (row) => row.id), (s) => s.regions),
      { id: "cxl", name: "CXL", node: this.cxl.node, tables: [] },
      { id: "transfers", name: "Transfers", node: this.traces.node, tables: [] },
      { id: "capture", name: "Capture", node: this.capture.node, tables: [] },
    ];
    for (const tab of tabs) tab.shown = () => this.fillTables();
    const last = tabs[tabs.length - 1];
    last.shown = () => this.capture.shown();
    last.hidden = () => this.capture.hidden();
    this.tabs = new Tabs(byId("tabs"), byId("panels"), tabs);
  }

  show(snapshot) {
    if (this.isPaused) return;
    this.state = stateOf(snapshot, this.devices);
    this.histories.add(this.state.rates);
    byId("trouble").hidden = true;
    this.head();
    this.topology.show(this.state);
    this.details.update(this.state);
    this.cxl.setHosts(snapshot.hosts);
    this.fillTables();
    this.updates += 1;
    document.documentElement.dataset.updates = this.updates;
    if (this.updates === 1) performance.mark("nupa-first-snapshot");
  }

  head() {
    const found = summary(this.state);
    const { totals, fabric, time_ns: time } = this.state.snapshot;
    setText(byId("fabric"), fabric);
    document.title = `${fabric} – NUPA`;
    for (const name of ["hosts", "links", "down", "qps", "mrs", "faults"]) setText(byId(`sum-${name}`), sayCount(found[name]));
    byId("sum-down").parentElement.classList.toggle("bad", found.down > 0);
    byId("sum-faults").parentElement.classList.toggle("bad", found.faults > 0);
    setText(byId("sum-traffic"), sayRate(found.traffic));
    this.tenantLegend();
    setText(byId("clock"), sayClock(time));
    for (const name of ["hosts", "ports", "qps", "mrs", "faults", "regions", "tenants"]) {
      this.tabs.setCount(name, totals[name] ? sayCount(totals[name]) : null);
    }
  }

  tenantLegend() {
    const node = byId("tenants-legend");
    const names = [...this.state.tenants];
    node.hidden = names.length === 0;
    const text = names.map(([name]) => name).join();
    if (node.dataset.names === text) return;
    node.dataset.names = text;
    const key = ([name, colour]) =>
      element("span", { class: "key" }, element("span", { class: `tag tenant-${colour}`, "aria-hidden": "true" }), name);
    node.replaceChildren("Tenants:", ...names.slice(0, TENANTS_SHOWN).map(key));
  }

  fillTables() {
    if (!this.state || !this.tabs) return;
    for (const [table, rows] of this.tabs.current.tables) {
      table.update(typeof rows === "function" ? rows(this.state.snapshot) : rows);
    }
  }

  filter() {
    const text = byId("filter").value;
    for (const tab of this.tabs.tabs) for (const [table] of tab.tables) table.setFilter(text);
    this.cxl.setFilter(text);
    this.traces.table.setFilter(text);
  }

  select(kind, id) {
    const port = this.state.hosts.get(id)?.port ?? (this.state.ports.has(id) ? id : null);
    this.topology.select(id);
    this.details.choose(kind, id, port);
    this.details.update(this.state);
  }

  setDevices(devices) {
    this.devices = new Map(devices.map((device) => [device.id, device]));
    if (this.state) this.state = stateOf(this.state.snapshot, this.devices);
    this.topology.setDevices(devices, this.state);
  }

  pause() {
    this.isPaused = !this.isPaused;
    const button = byId("pause");
    button.setAttribute("aria-pressed", String(this.isPaused));
    button.textContent = this.isPaused ? "Resume" : "Pause";
    this.connection(this.feed.state);
  }

  connection(state) {
    const shown = this.isPaused ? "paused" : state;
    const node = byId("connection");
    if (node.dataset.state === shown) return;
    node.dataset.state = shown;
    setText(node, { connecting: "connecting", live: "live", lost: "connection lost", paused: "paused" }[shown]);
    if (shown === "lost") this.announcer.say("connection lost");
  }

  trouble(message) {
    const node = byId("trouble");
    if (node.hidden) this.announcer.say(message);
    node.hidden = false;
    setText(node, message);
  }
}

function makeLegend(node) {
  LOADS.forEach((load, at) => {
    node.append(element("span", { class: "key" }, element("span", { class: `swatch load-${at}`, "aria-hidden": "true" }), load.name));
  });
  node.append(element("span", { class: "key" }, element("span", { class: "swatch down", "aria-hidden": "true" }), "✕ down"));
  node.append(element("span", { class: "key" }, element("span", { class: "badge", "aria-hidden": "true" }, "⚠"), "fault"));
}

async function start() {
  startTheme();
  try {
    new Page(await ask("/live/about"));
  } catch (error) {
    byId("trouble").hidden = false;
    setText(byId("trouble"), error.message);
  }
}

start();
