// SPDX-License-Identifier: BSD-3-Clause
// Rates of ports in bytes a second, and the load of links.

const NONE = { tx: 0, rx: 0, packets: 0 };

/** Steps of load, by the part of a link's nominal speed; the last has no end. */
export const LOADS = [
  { below: 0.000001, name: "idle" },
  { below: 0.01, name: "below 1 %" },
  { below: 0.1, name: "below 10 %" },
  { below: 0.5, name: "below 50 %" },
  { below: 0.9, name: "below 90 %" },
  { below: Infinity, name: "90 % and more" },
];

/** Returns a snapshot's rates by the name of the port: tx, rx, packets. */
export function portRates(snapshot) {
  const rates = new Map();
  for (const [port, [tx, rx, sent, received]] of Object.entries(snapshot.rates)) {
    rates.set(port, { tx, rx, packets: sent + received });
  }
  return rates;
}

/** Returns the rate of a port, zeros if it has none. */
export function rateOf(rates, port) {
  return rates.get(port) ?? NONE;
}

/** Returns the part of a nominal speed in Gb/s that the busier direction takes. */
export function loadOf(rate, nominalGbps) {
  return nominalGbps > 0 ? (Math.max(rate.tx, rate.rx) * 8) / (nominalGbps * 1e9) : 0;
}

/** Returns the place of a load in LOADS. */
export function stepOf(load) {
  return LOADS.findIndex((step) => load < step.below);
}

/** Histories of ports: the latest rates of each, for small charts. */
export class Histories {
  constructor(length = 120) {
    this.length = length;
    this.byPort = new Map();
  }

  /** Adds the rates of a snapshot, and forgets ports that are gone. */
  add(rates) {
    for (const name of this.byPort.keys()) {
      if (!rates.has(name)) this.byPort.delete(name);
    }
    for (const [name, rate] of rates) {
      const history = this.byPort.get(name) ?? [];
      history.push(rate.tx + rate.rx);
      if (history.length > this.length) history.shift();
      this.byPort.set(name, history);
    }
  }

  of(port) {
    return this.byPort.get(port) ?? [];
  }
}
