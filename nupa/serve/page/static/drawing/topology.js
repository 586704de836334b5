// SPDX-License-Identifier: BSD-3-Clause
// The drawing of the topology: made when its structure changes, else only brought up to date.

import { drawn, setAttribute, setText } from "../dom.js";
import { layout } from "./layout.js";
import { LOADS, loadOf, rateOf, stepOf } from "../rates.js";
import { sayMany, sayRate, sayShortRate } from "../say.js";

const WIDTH_MIN = 560;
const TRUNKS_FEW = 32; // more have no texts, and thin lines

export class Topology {
  /** *on.select*(kind, id): a node or trunk was chosen. */
  constructor(node, on) {
    this.node = node;
    this.on = on;
    this.open = new Set();
    this.devices = [];
    this.selected = "";
    this.current = "";
    this.structure = "";
    this.parts = [];
    node.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.redraw()).observe(node.parentElement);
  }

  /** Shows a state: {snapshot, rates, hosts, ports, faults, tenants}, as main.js makes it. */
  show(state) {
    this.state = state;
    const width = Math.max(WIDTH_MIN, Math.floor(this.node.parentElement.clientWidth));
    const { snapshot } = state;
    const structure = [
      width,
      snapshot.generation,
      snapshot.ports.length,
      snapshot.hosts.map((host) => host.name).join(),
      [...this.open].join(),
      this.devices.map((device) => device.id + device.host).join(),
      state.pods.map((pod) => pod.id + pod.short).join(),
    ].join("|");
    if (structure !== this.structure) {
      this.structure = structure;
      this.draw(layout(snapshot, { width, open: this.open, devices: this.devices, pods: state.pods }));
    }
    for (const part of this.parts) part.update(state);
  }

  redraw() {
    if (this.state) this.show(this.state);
  }

  /** Shows other devices, and the state that has them. */
  setDevices(devices, state) {
    this.devices = devices;
    this.state = state;
    this.redraw();
  }

  select(id) {
    this.selected = id;
    for (const part of this.parts) {
      setAttribute(part.node, "aria-pressed", part.id === id ? "true" : "false");
    }
  }

  draw(found) {
    const had = this.node.contains(document.activeElement) ? this.current : "";
    this.parts = [];
    this.trunks = found.trunks.length;
    setAttribute(this.node, "viewBox", `0 0 ${found.width} ${found.height}`);
    setAttribute(this.node, "width", found.width);
    setAttribute(this.node, "height", found.height);
    const many = found.trunks.length > TRUNKS_FEW;
    const layers = { links: drawn("g", { "aria-hidden": "true", class: many ? "many" : null }), nodes: drawn("g", {}) };
    for (const trunk of found.trunks) this.trunk(layers, trunk);
    for (const one of found.switches) this.switch(layers, one, found);
    for (const item of found.items) {
      this.wire(layers, item);
      if (item.isGroup) this.group(layers, item);
      else this.host(layers, item);
    }
    for (const strip of found.strips) this.strip(layers, strip);
    for (const chip of found.chips) this.chip(layers, chip);
    this.node.replaceChildren(layers.links, layers.nodes);
    this.parts.sort((p, q) => p.y - q.y || p.x - q.x);
    this.focusable(this.parts.some((part) => part.id === this.current) ? this.current : this.parts[0]?.id);
    this.select(this.selected);
    if (had) this.parts.find((part) => part.id === this.current)?.node.focus();
  }

  /** Adds a node that can be chosen; *update*(state) returns its accessible name. */
  add(layer, { id, kind, place, node, update, act }) {
    node.setAttribute("role", "button");
    node.setAttribute("data-id", id);
    node.classList.add("node", kind);
    const choose = act ?? (() => this.on.select(kind, id));
    node.addEventListener("click", () => {
      this.focusable(id);
      choose();
    });
    layer.append(node);
    const part = { id, node, choose, ...place };
    part.update = (state) => setAttribute(node, "aria-label", update(state));
    this.parts.push(part);
  }

  wire(layers, item) {
    const { switch: leaf, x, y, width, row } = item;
    const from = leaf.y + leaf.height;
    const middle = x + width / 2;
    // Links to lower rows pass between the columns.
    const gutter = x - 5 + 1.5 * (1 + ((row + 2) % 3));
    const path = row
      ? `M${gutter} ${from}V${y - 6}H${middle}V${y}`
      : `M${middle} ${from}V${y}`;
    item.wire = drawn("path", { d: path, class: row ? "link thin" : "link" });
    layers.links.append(item.wire);
  }

  host(layers, item) {
    const tile = new Tile(item);
    this.add(layers.nodes, {
      id: item.id,
      kind: "host",
      place: { x: item.x, y: item.y },
      node: tile.node,
      update: (state) => tile.update(state),
    });
  }

  group(layers, item) {
    const first = item.hosts[0].name;
    const last = item.hosts[item.hosts.length - 1].name;
    const middle = item.x + item.width / 2;
    const line = (at, kind, text = "") =>
      drawn("text", { x: middle, y: item.y + at, class: kind, "text-anchor": "middle" }, text);
    const rate = line(58, "rate");
    const mark = drawn("text", { x: item.x + item.width - 5, y: item.y + 11, class: "badge", "text-anchor": "end" });
    const node = drawn(
      "g",
      { "aria-expanded": this.open.has(item.id) ? "true" : "false" },
      drawn("rect", { x: item.x + 3, y: item.y + 3, width: item.width, height: item.height, rx: 5, class: "behind" }),
      drawn("rect", { x: item.x, y: item.y, width: item.width, height: item.height, rx: 5, class: "tile" }),
      line(16, "name", first),
      line(30, "name", `… ${last}`),
      line(44, "small", sayMany(item.hosts.length, "host")),
      rate,
      mark,
    );
    this.add(layers.nodes, {
      id: item.id,
      kind: "group",
      place: { x: item.x, y: item.y },
      node,
      act: () => {
        if (!this.open.delete(item.id)) this.open.add(item.id);
        this.redraw();
      },
      update: (state) => {
        const sum = summed(item.hosts, state);
        setText(rate, sayShortRate(sum.tx + sum.rx));
        setText(mark, [sum.down ? `✕${sum.down}` : "", sum.faults ? `⚠${sum.faults}` : ""].join(" ").trim());
        loaded(item.wire, sum.load, sum.down < item.hosts.length);
        const open = this.open.has(item.id) ? "open" : "closed";
        return (
          `${first} to ${last} at ${item.switch.name}: ${sayMany(item.hosts.length, "host")}, ${open}, ` +
          `${sayRate(sum.tx)} sent, ${sayRate(sum.rx)} received` +
          (sum.down ? `, ${sayMany(sum.down, "port")} down` : "") +
          (sum.faults ? `, ${sayMany(sum.faults, "fault")}` : "")
        );
      },
    });
  }

  strip(layers, strip) {
    layers.links.append(
      drawn(
        "text",
        { x: strip.x, y: strip.y + 12, class: "small" },
        `${strip.item.id}, at ${strip.item.switch.name}`,
      ),
    );
    for (const tile of strip.tiles) this.host(layers, tile);
  }

  switch(layers, one, found) {
    const trunks = found.trunks.filter((trunk) => trunk.a === one || trunk.b === one);
    const name = drawn("text", { x: one.x + 10, y: one.y + 20, class: "name" }, one.name);
    const rate = drawn("text", { x: one.x + one.width - 10, y: one.y + 20, class: "rate", "text-anchor": "end" });
    const hosts = one.items.flatMap((item) => item.hosts);
    const node = drawn(
      "g",
      {},
      drawn("rect", { x: one.x, y: one.y, width: one.width, height: one.height, rx: 5, class: "bar" }),
      name,
      rate,
    );
    const what = [hosts.length ? sayMany(hosts.length, "host") : "", trunks.length ? sayMany(trunks.length, "trunk") : ""];
    this.add(layers.nodes, {
      id: one.name,
      kind: "switch",
      place: { x: one.x, y: one.y },
      node,
      update: (state) => {
        const sum = summed(hosts, state);
        const total = hosts.length
          ? sum.tx
          : trunks.reduce((so, trunk) => so + rateOf(state.rates, trunk.port).tx + rateOf(state.rates, trunk.port).rx, 0);
        setText(rate, one.width > 110 ? sayRate(total) : "");
        return `${one.name}: switch, ${what.filter(Boolean).join(", ")}, ${sayRate(total)}`;
      },
    });
  }

  trunk(layers, trunk) {
    const line = drawn("path", { d: trunk.path, class: "link trunk" });
    layers.links.append(line);
    const text = drawn("text", { x: trunk.textX, y: trunk.textY + 3.5, class: "rate halo", "text-anchor": "middle" });
    const node = drawn("g", {}, drawn("path", { d: trunk.path, class: "wide" }), text);
    const few = this.trunks <= TRUNKS_FEW;
    this.add(layers.nodes, {
      id: trunk.id,
      kind: "trunk",
      place: { x: trunk.textX, y: trunk.textY },
      node,
      update: (state) => {
        const rate = rateOf(state.rates, trunk.port);
        const up = isLinkUp(state, trunk.port);
        const faults = state.faults.get(trunk.port)?.length ?? 0;
        const load = loadOf(rate, trunk.gbps);
        loaded(line, load, up);
        const most = Math.max(rate.tx, rate.rx);
        const words = up ? (few && most ? sayShortRate(most) : "") : "✕ down";
        setText(text, faults ? `${words} ⚠` : words);
        return (
          `link ${trunk.port} to ${trunk.peer}: ${up ? "up" : "down"}, ${sayRate(rate.tx)} sent, ` +
          `${sayRate(rate.rx)} received, load ${LOADS[stepOf(load)].name}` +
          (faults ? `, ${sayMany(faults, "fault")}` : "")
        );
      },
    });
  }

  chip(layers, chip) {
    const { devices, x, y, width, height } = chip;
    const one = devices.length === 1;
    const text = one ? devices[0].short : sayMany(devices.length, "CXL device");
    const node = drawn(
      "g",
      {},
      drawn("rect", { x, y, width, height, rx: 12, class: "chip" }),
      drawn("text", { x: x + width / 2, y: y + 17, class: "small", "text-anchor": "middle" }, text),
    );
    this.add(layers.nodes, {
      id: one ? devices[0].id : `cxl-${chip.leaf.name}`,
      kind: "device",
      place: { x, y },
      node,
      update: (state) => devices.map(({ id, name }) => state.devices.get(id)?.name ?? name).join("; "),
    });
  }

  /** Makes one part the place of the tab key. */
  focusable(id) {
    this.current = id ?? "";
    for (const part of this.parts) {
      setAttribute(part.node, "tabindex", part.id === this.current ? "0" : "-1");
    }
  }

  key(event) {
    const at = this.parts.findIndex((part) => part.id === this.current);
    if (at < 0) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.parts[at].choose();
      return;
    }
    const next = beside(this.parts, at, event.key);
    if (next === undefined) return;
    event.preventDefault();
    this.focusable(this.parts[next].id);
    this.parts[next].node.focus();
  }
}

/** Returns the place of the part that an arrow key leads to; undefined: no such key. */
export function beside(parts, at, key) {
  const here = parts[at];
  const last = parts.length - 1;
  if (key === "Home") return 0;
  if (key === "End") return last;
  if (key === "ArrowRight") return Math.min(at + 1, last);
  if (key === "ArrowLeft") return Math.max(at - 1, 0);
  if (key !== "ArrowDown" && key !== "ArrowUp") return undefined;
  const sign = key === "ArrowDown" ? 1 : -1;
  const ahead = parts.filter((part) => (part.y - here.y) * sign > 1);
  if (!ahead.length) return at;
  const nearest = Math.min(...ahead.map((part) => (part.y - here.y) * sign));
  const row = ahead.filter((part) => (part.y - here.y) * sign < nearest + 1);
  row.sort((p, q) => Math.abs(p.x - here.x) - Math.abs(q.x - here.x));
  return parts.indexOf(row[0]);
}

/** A host's tile: name, rate, tenant; marks of a port that is down, and of faults. */
class Tile {
  constructor(item) {
    const { x, y, width, height } = item;
    const middle = x + width / 2;
    this.item = item;
    this.rate = drawn("text", { x: middle, y: y + 32, class: "rate", "text-anchor": "middle" });
    this.stripe = drawn("rect", { x: x + 4, y: y + height - 4, width: width - 8, height: 2.5, rx: 1, class: "stripe" });
    this.badge = drawn("text", { x: x + width, y: y - 4, class: "badge", "text-anchor": "end" });
    this.node = drawn(
      "g",
      {},
      drawn("rect", { x, y, width, height, rx: 5, class: "tile" }),
      drawn("text", { x: middle, y: y + 16, class: "name", "text-anchor": "middle" }, item.id),
      this.rate,
      this.stripe,
      this.badge,
    );
  }

  update(state) {
    const host = state.hosts.get(this.item.id);
    const rate = rateOf(state.rates, host.port);
    const up = isLinkUp(state, host.port);
    const faults = state.faults.get(host.port) ?? [];
    const ready = !host.control_state || host.control_state === "ready";
    const load = loadOf(rate, state.ports.get(host.port)?.nominal_gbps ?? 0);
    const busier = sayShortRate(Math.max(rate.tx, rate.rx));
    setText(this.rate, !ready ? host.control_state : up ? busier : "✕ down");
    setText(this.badge, faults.length ? `⚠${faults.length > 1 ? faults.length : ""}` : "");
    this.node.classList.toggle("down", !up || !ready);
    this.node.classList.toggle("faulty", faults.length > 0);
    const tenant = state.tenants.get(host.tenant);
    setAttribute(this.stripe, "class", `stripe tenant-${tenant ?? "none"}`);
    if (this.item.wire) loaded(this.item.wire, load, up);
    return (
      `${host.name}: port ${up ? "up" : "down"}${ready ? "" : `, ${host.control_state}`}, ` +
      `${sayRate(rate.tx)} sent, ${sayRate(rate.rx)} received, load ${LOADS[stepOf(load)].name}` +
      (host.tenant ? `, tenant ${host.tenant}` : "") +
      (faults.length ? `, ${sayMany(faults.length, "fault")}: ${faults.map((f) => f.kind).join(", ")}` : "")
    );
  }
}

function loaded(line, load, up) {
  const kind = ["trunk", "thin"].find((name) => line.classList.contains(name)) ?? "";
  setAttribute(line, "class", `link ${kind} ${up ? `load-${stepOf(load)}` : "down"}`);
}

function isLinkUp(state, port) {
  const here = state.ports.get(port);
  const there = state.ports.get(here?.peer);
  return here?.state === "ACTIVE" && (!there || there.state === "ACTIVE");
}

function summed(hosts, state) {
  const sum = { tx: 0, rx: 0, down: 0, faults: 0, load: 0 };
  for (const { name } of hosts) {
    const port = state.hosts.get(name)?.port;
    const rate = rateOf(state.rates, port);
    sum.tx += rate.tx;
    sum.rx += rate.rx;
    sum.load = Math.max(sum.load, loadOf(rate, state.ports.get(port)?.nominal_gbps ?? 0));
    sum.down += isLinkUp(state, port) ? 0 : 1;
    sum.faults += state.faults.get(port)?.length ?? 0;
  }
  return sum;
}
