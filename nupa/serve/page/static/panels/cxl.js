// SPDX-License-Identifier: BSD-3-Clause
// CXL devices: ports of the switch, bindings of virtual switches, logical devices, decoders.

import { element, setText } from "../dom.js";
import { ask } from "../requests.js";
import { sayBytes } from "../say.js";
import { Table } from "./tables.js";

const EVERY_MS = 3000;
const bytes = { number: true, say: sayBytes };

const PORTS = [
  { name: "Port", of: (row) => row.port, number: true },
  { name: "State", of: (row) => row.state },
  { name: "Device", of: (row) => row.device || "none" },
  { name: "Link", of: (row) => (row.in_reset ? "reset" : row.up ? `x${row.width}` : "down") },
  { name: "Bound to", of: (row) => row.bound },
];
const LDS = [
  { name: "Device", of: (row) => `port ${row.port}` },
  { name: "LD", of: (row) => row.ld, number: true },
  { name: "Memory", of: (row) => row.size, ...bytes },
  { name: "Bandwidth of 256", of: (row) => row.share, number: true },
  { name: "Bound to", of: (row) => row.bound },
];
const DECODERS = [
  { name: "Host", of: (row) => row.host },
  { name: "Host address", of: (row) => row.hpa, code: true },
  { name: "Size", of: (row) => row.size, ...bytes },
  { name: "Ways", of: (row) => row.ways, number: true },
  { name: "Granularity", of: (row) => row.granularity, number: true, say: (value) => (value ? sayBytes(value) : "") },
  { name: "Mapped", of: (row) => row.mapped, number: true },
];

/** Returns where ports and logical devices are bound, by "port" or "port.ld": "host0 vPPB 1". */
export function bindings(found, hosts) {
  const bound = new Map();
  for (const virtual of found.virtual_switches) {
    const host = hosts[virtual.number]?.name ?? `VCS ${virtual.number}`;
    for (const vppb of virtual.vppbs) {
      if (vppb.port === null) continue;
      const keys = vppb.ld === null ? [`${vppb.port}`] : [`${vppb.port}`, `${vppb.port}.${vppb.ld}`];
      for (const key of keys) bound.set(key, [...(bound.get(key) ?? []), `${host} vPPB ${vppb.vppb}`]);
    }
  }
  return bound;
}

/** Returns devices for the drawing, each at the host that its port follows in number. */
export function devicesOf(found, hosts) {
  const bound = bindings(found, hosts);
  const sizes = new Map(found.logical_devices.map((one) => [one.port, one.memory_bytes]));
  return found.ports
    .filter((port) => port.device && port.port >= hosts.length)
    .map((port) => {
      const to = (bound.get(`${port.port}`) ?? []).join(", ") || "nothing";
      return {
        id: `cxl${port.port}`,
        short: `${port.device} ${port.port}`,
        name: `CXL device at port ${port.port}: ${port.device}, bound to ${to}`,
        host: hosts[(port.port - hosts.length) % hosts.length].name,
        values: [
          ["Device", port.device === "MLD" ? "multi-logical device" : "single logical device"],
          ["Port", `${port.port}, ${port.state}`],
          ["Link", port.up ? `x${port.width}` : "down"],
          ["Bound to", to],
          ...(sizes.has(port.port) ? [["Memory", sayBytes(sizes.get(port.port))]] : []),
        ],
      };
    });
}

export class CxlPanel {
  /** *changed*(devices): the drawing's. */
  constructor(changed) {
    this.changed = changed;
    this.hosts = [];
    this.before = "";
    this.note = element("p", { class: "small" });
    this.ports = new Table("Switch ports", PORTS, (row) => row.port, { note: "No switch is served." });
    this.lds = new Table("Logical devices", LDS, (row) => `${row.port}.${row.ld}`);
    this.decoders = new Table("Decoders", DECODERS, (row) => `${row.host}:${row.hpa}`);
    const part = (name, table) => element("section", {}, element("h3", {}, name), table.node);
    this.node = element(
      "div",
      {},
      this.note,
      element(
        "div",
        { class: "beside" },
        part("Switch ports", this.ports),
        part("Logical devices", this.lds),
        part("Decoders of hosts", this.decoders),
      ),
    );
    setInterval(() => this.ask(), EVERY_MS);
  }

  setHosts(hosts) {
    const first = !this.hosts.length && hosts.length;
    this.hosts = hosts;
    if (first) this.ask();
  }

  setFilter(filter) {
    for (const table of [this.ports, this.lds, this.decoders]) table.setFilter(filter);
  }

  async ask() {
    if (document.hidden || !this.hosts.length) return;
    try {
      this.update(await ask("/live/cxl"));
    } catch (error) {
      setText(this.note, error.message);
    }
  }

  update(found) {
    const text = JSON.stringify(found);
    if (text === this.before) return;
    this.before = text;
    const bound = bindings(found, this.hosts);
    const of = (key) => (bound.get(key) ?? []).join(", ");
    setText(this.note, found.served ? "" : `${found.why}.`);
    this.ports.update(
      found.ports.map((port) => ({
        ...port,
        device: port.device || (this.hosts[port.port] ? `host ${this.hosts[port.port].name}` : ""),
        bound: of(`${port.port}`),
      })),
    );
    this.lds.update(
      found.logical_devices.flatMap((device) =>
        device.lds
          .map((size, ld) => ({
            port: device.port,
            ld,
            size,
            share: device.bandwidth_256ths[ld],
            bound: of(`${device.port}.${ld}`),
          }))
          .filter((row) => row.size || row.bound),
      ),
    );
    this.decoders.update(found.decoders);
    this.changed(devicesOf(found, this.hosts));
  }
}
