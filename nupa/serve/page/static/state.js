// SPDX-License-Identifier: BSD-3-Clause
// The state of the page: a snapshot, and what is looked up in it by name.

import { faultsByPort } from "./drawing/links.js";
import { portRates } from "./rates.js";
import { sayMany } from "./say.js";

const COLOURS = 8;

/** Returns partitions that have accelerators, as the drawing shows them. */
export function podsOf(snapshot) {
  return snapshot.partitions
    .map((partition) => ({
      partition,
      numbers: (partition.members ?? [])
        .filter((member) => member.kind === "accelerator")
        .map((member) => member.name.replace("accelerator:", "")),
    }))
    .filter(({ numbers }) => numbers.length)
    .map(({ partition, numbers }) => {
      const what = partition.kind === "vpod" ? "vPod" : "partition";
      return {
        id: `pod-${partition.name}`,
        short: `${what} ${partition.name}: ${sayMany(numbers.length, "accelerator")}`,
        name: `${what} ${partition.name}: accelerators ${numbers.join(", ")}`,
        values: [
          ["Kind", partition.kind === "vpod" ? "virtual pod" : "partition"],
          ["Tenant", partition.tenant || "none"],
          ["Accelerators", numbers.join(", ")],
        ],
      };
    });
}

/** Returns the state of a snapshot; devices: of the drawing, by id. */
export function stateOf(snapshot, devices = new Map()) {
  const tenants = snapshot.tenants.map((tenant) => tenant.name);
  const pods = podsOf(snapshot);
  return {
    snapshot,
    pods,
    devices: new Map([...devices, ...pods.map((pod) => [pod.id, pod])]),
    rates: portRates(snapshot),
    hosts: new Map(snapshot.hosts.map((host) => [host.name, host])),
    ports: new Map(snapshot.ports.map((port) => [port.name, port])),
    faults: faultsByPort(snapshot),
    tenants: new Map(tenants.map((name, at) => [name, at % COLOURS])),
  };
}

/** Returns the numbers of the page's head. */
export function summary(state) {
  const { snapshot, ports } = state;
  const down = snapshot.ports.filter(
    (port) => port.name < port.peer && !(port.state === "ACTIVE" && ports.get(port.peer)?.state === "ACTIVE"),
  );
  let traffic = 0;
  for (const host of snapshot.hosts) traffic += state.rates.get(host.port)?.tx ?? 0;
  return {
    hosts: snapshot.totals.hosts,
    links: snapshot.totals.ports / 2,
    down: down.length,
    qps: snapshot.totals.qps,
    mrs: snapshot.totals.mrs,
    faults: snapshot.faults.filter((fault) => !fault.ended).length,
    traffic,
  };
}
