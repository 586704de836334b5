// SPDX-License-Identifier: BSD-3-Clause
// Links: pairs of ports, from what a snapshot says of each port.

/** Returns the host or switch of a port: "host0/1" is of host0. */
export function nodeOf(port) {
  const at = port.lastIndexOf("/");
  return at > 0 ? port.slice(0, at) : port;
}

/** Returns each link once: its two ports, the nodes at its ends, speed, and whether it is up. */
export function sortedLinks(ports) {
  const byName = new Map(ports.map((port) => [port.name, port]));
  const links = [];
  const seen = new Set();
  for (const port of ports) {
    if (seen.has(port.name)) continue;
    seen.add(port.name).add(port.peer);
    const peer = byName.get(port.peer);
    links.push({
      id: port.name,
      port: port.name,
      peer: port.peer,
      from: nodeOf(port.name),
      to: nodeOf(port.peer),
      gbps: port.nominal_gbps,
      kind: `${port.width} ${port.speed}`,
      up: isUp(port) && (!peer || isUp(peer)),
    });
  }
  return links;
}

export function isUp(port) {
  return port.state === "ACTIVE" || port.state === "active";
}

/** Returns the faults of a link by its port's name; ended ones count no more. */
export function faultsByPort(snapshot) {
  const found = new Map();
  const peers = new Map(snapshot.ports.map((port) => [port.name, port.peer]));
  for (const fault of snapshot.faults) {
    if (fault.ended) continue;
    for (const name of [fault.port, peers.get(fault.port)]) {
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(fault);
    }
  }
  return found;
}
