// SPDX-License-Identifier: BSD-3-Clause
// Details of what is selected: values, a chart, and the changes of its link.

import { errorsOf, parameters } from "./columns.js";
import { drawn, element, setAttribute, setText } from "../dom.js";
import { LOADS, loadOf, rateOf, stepOf } from "../rates.js";
import { sayMany, sayPkey, sayRate } from "../say.js";

const CHART = { width: 280, height: 44 };

export class Details {
  /** *changes*: from changes.js, null: the page may only look.  *histories*: of ports. */
  constructor(node, { changes, histories }) {
    Object.assign(this, { node, changes, histories, id: "", rows: new Map() });
  }

  /** Shows a node or link; *port*: its port, null: it has none of its own. */
  choose(kind, id, port) {
    Object.assign(this, { kind, id, port, rows: new Map() });
    this.list = element("dl");
    this.line = drawn("polyline", { class: "chart-line" });
    this.chartText = element("span", { class: "small" });
    const chart = element(
      "div",
      { class: "chart" },
      drawn(
        "svg",
        { viewBox: `0 0 ${CHART.width} ${CHART.height}`, "aria-hidden": "true", preserveAspectRatio: "none" },
        this.line,
      ),
      this.chartText,
    );
    const name = port && kind === "trunk" ? port : id;
    this.node.replaceChildren(
      element("h3", { id: "details-name", tabindex: "-1" }, name),
      this.list,
      port ? chart : "",
      port && this.changes ? this.changes.forPort(port) : "",
    );
  }

  update(state) {
    if (!this.id) return;
    const host = state.hosts.get(this.id);
    const port = state.ports.get(this.port);
    for (const [name, value] of this.values(state, host, port)) this.row(name, value);
    if (port) {
      this.chart();
      this.changes?.update(this.port, state);
    }
  }

  values(state, host, port) {
    const found = [];
    if (host) {
      found.push(["Address", host.ipv4], ["MAC", host.mac]);
      if (host.lid) found.push(["LID", String(host.lid)]);
      found.push(["State", host.control_state ?? "ready"]);
      found.push(["Tenant", host.tenant || "none"]);
      const pkeys = (host.pkeys ?? []).filter(Boolean).map(sayPkey).join(", ");
      found.push(["P_Keys", pkeys || "none"]);
    }
    if (port) {
      const rate = rateOf(state.rates, port.name);
      const load = loadOf(rate, port.nominal_gbps);
      const faults = state.faults.get(port.name) ?? [];
      found.push(
        ["Link", `${port.name} – ${port.peer}, ${port.width} ${port.speed}, ${port.nominal_gbps} Gb/s`],
        ["Port", port.state === "ACTIVE" ? "up" : "down"],
        ["Sends", sayRate(rate.tx)],
        ["Receives", sayRate(rate.rx)],
        ["Load", `${(load * 100).toPrecision(2)} %, ${LOADS[stepOf(load)].name}`],
        ["Faults", faults.map((one) => `${one.kind} ${parameters(one)}`.trim()).join("; ") || "none"],
      );
    }
    if (host) {
      const programs = host.processes.map((one) => `${one.comm} (${one.pid})`).join(", ");
      const [qps, mrs] = ["qps", "mrs"].map((name) => host.processes.reduce((n, one) => n + one[name], 0));
      found.push(["Programs", programs || "none"], ["Resources", `${sayMany(qps, "QP")}, ${sayMany(mrs, "MR")}`]);
      const errors = Object.entries(host.hw_counters).map(([name, value]) => `${name} ${value}`);
      found.push(["Errors", errorsOf(host) ? errors.join(", ") : "none"]);
    }
    if (this.kind === "switch") {
      const ports = [...state.ports.values()].filter((one) => one.name.startsWith(`${this.id}/`));
      const down = ports.filter((one) => one.state !== "ACTIVE");
      const total = ports.reduce((all, one) => all + rateOf(state.rates, one.name).rx, 0);
      found.push(["Linked ports", String(ports.length)], ["Down", down.map((one) => one.name).join(", ") || "none"]);
      found.push(["Receives", sayRate(total)]);
    }
    if (this.kind === "device") found.push(...(state.devices.get(this.id)?.values ?? []));
    return found;
  }

  row(name, value) {
    if (!this.rows.has(name)) {
      const node = element("dd");
      this.rows.set(name, node);
      this.list.append(element("div", {}, element("dt", {}, name), node));
    }
    setText(this.rows.get(name), value);
  }

  chart() {
    const history = this.histories.of(this.port);
    const most = Math.max(...history, 1);
    const room = CHART.height - 14; // above the largest, too
    const step = CHART.width / Math.max(this.histories.length - 1, 1);
    const from = CHART.width - (history.length - 1) * step;
    const points = history.map(
      (value, at) => `${(from + at * step).toFixed(1)},${(CHART.height - 3 - (value / most) * room).toFixed(1)}`,
    );
    setAttribute(this.line, "points", points.join(" "));
    setText(this.chartText, `last minute, most ${sayRate(most > 1 ? most : 0)} both ways`);
  }
}
