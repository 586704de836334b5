// SPDX-License-Identifier: BSD-3-Clause
// Places of nodes and links: the same input gives the same drawing.
//
// Switches with hosts form the lowest tier.  Their hosts hang below them, in columns.  Other
// switches are above, by their distance from hosts.  Many hosts of a switch become groups.

import { sortedLinks } from "./links.js";

export const GROUP = 64; // hosts in a group, and of a switch without groups
const TOTAL = 160; // from more endpoints on, switches with more than a few have groups
const FEW = 8;
const MARGIN = 10;
const GAP = 14; // between switches
const TILE = { min: 46, max: 92, height: 40, gap: 5 };
const BAR = 30;
const DROP = 30; // from a switch to its hosts
const ARC = 19;
const TIER = 84;
const CHIP = 26;
const POD = 210; // a virtual pod

/** Returns tiers of switches, the lowest first: names, in the order of the ports. */
export function tiersOf(hosts, links) {
  const isHost = new Set(hosts.map((host) => host.name));
  const neighbours = new Map();
  const tier = new Map();
  for (const link of links) {
    for (const [one, other] of [
      [link.from, link.to],
      [link.to, link.from],
    ]) {
      if (isHost.has(one)) continue;
      if (!neighbours.has(one)) neighbours.set(one, []);
      if (isHost.has(other)) tier.set(one, 0);
      else neighbours.get(one).push(other);
    }
  }
  const queue = [...neighbours.keys()].filter((name) => tier.has(name));
  for (const name of queue) {
    for (const other of neighbours.get(name)) {
      if (tier.has(other)) continue;
      tier.set(other, tier.get(name) + 1);
      queue.push(other);
    }
  }
  const tiers = [];
  for (const name of neighbours.keys()) {
    const at = tier.get(name) ?? 0;
    while (tiers.length <= at) tiers.push([]);
    tiers[at].push(name);
  }
  return tiers;
}

/** Returns the items below a switch: each a host, or a group of up to GROUP hosts. */
export function itemsOf(hosts, total) {
  const few = hosts.length <= FEW || (hosts.length <= GROUP && total <= TOTAL);
  if (few) return hosts.map((host) => ({ id: host.name, hosts: [host] }));
  const items = [];
  for (let at = 0; at < hosts.length; at += GROUP) {
    const part = hosts.slice(at, at + GROUP);
    const last = part[part.length - 1].name;
    items.push({ id: part.length > 1 ? `${part[0].name} … ${last}` : last, hosts: part });
  }
  return items;
}

/** Returns how many columns each switch has: all its items in a row where there is room. */
export function columnsOf(counts, width) {
  const room = width - 2 * MARGIN - GAP * (counts.length - 1);
  const fit = Math.max(counts.length, Math.floor((room + TILE.gap) / (TILE.min + TILE.gap)));
  const all = counts.reduce((sum, count) => sum + count, 0);
  const columns = counts.map((count) => {
    const most = all <= fit ? Math.max(1, count) : Math.max(1, Math.floor((fit * count) / all));
    return Math.max(1, Math.ceil(count / Math.ceil(count / most))); // rows of one length
  });
  const used = columns.reduce((sum, count) => sum + count, 0);
  const tile = Math.min(TILE.max, (room - TILE.gap * (used - counts.length)) / Math.max(1, used));
  return { columns, tile: Math.max(TILE.min * 0.75, tile) };
}

/** Gives each arc between switches of one tier a level above them, so that none overlap. */
export function levelsOf(arcs) {
  const levels = [];
  const order = [...arcs].sort((a, b) => a.right - a.left - (b.right - b.left) || a.left - b.left);
  for (const arc of order) {
    let level = 0;
    while ((levels[level] ?? []).some((other) => other.left < arc.right && arc.left < other.right)) {
      level += 1;
    }
    (levels[level] ??= []).push(arc);
    arc.level = level;
  }
  return levels.length;
}

/**
 * Returns the drawing: width, height, switches, items, trunks, strips (groups that are open) and
 * chips (devices, virtual pods), each with its place in pixels.
 */
export function layout(snapshot, { width, open = new Set(), devices = [], pods = [] }) {
  const links = sortedLinks(snapshot.ports);
  const tiers = tiersOf(snapshot.hosts, links);
  const above = new Map();
  for (const link of links) above.set(link.from, link.to);
  const leaves = (tiers[0] ?? []).map((name) => ({
    name,
    items: itemsOf(
      snapshot.hosts.filter((host) => above.get(host.name) === name),
      snapshot.hosts.length,
    ),
  }));
  const isHost = new Set(snapshot.hosts.map((host) => host.name));
  const trunks = links.filter((link) => !isHost.has(link.from) && !isHost.has(link.to));
  const found = { width, switches: [], items: [], strips: [], chips: [], trunks };
  placeLeaves(found, leaves, width);

  placeTrunks(found, tiers);
  let y = found.bottom + BAR + DROP;
  y = placeItems(found, leaves, y);
  y = placeChips(found, leaves, devices, y);
  y = placePods(found, pods, y);
  found.height = placeStrips(found, open, y) + MARGIN;
  return found;
}

function placeLeaves(found, leaves, width) {
  const { columns, tile } = columnsOf(
    leaves.map((leaf) => leaf.items.length),
    width,
  );
  found.tile = tile;
  const spans = columns.map((count) => count * tile + (count - 1) * TILE.gap);
  const used = spans.reduce((sum, span) => sum + span, 0) + GAP * (leaves.length - 1);
  let x = Math.max(MARGIN, (width - used) / 2);
  found.width = Math.max(width, used + 2 * MARGIN);
  leaves.forEach((leaf, at) => {
    leaf.columns = columns[at];
    Object.assign(leaf, { x, width: spans[at], tier: 0, id: leaf.name, height: BAR });
    found.switches.push(leaf);
    x += spans[at] + GAP;
  });
}

function placeTrunks(found, tiers) {
  const byName = new Map(found.switches.map((one) => [one.name, one]));
  tiers.slice(1).forEach((names, tier) => {
    const span = Math.min(150, (found.width - 2 * MARGIN) / names.length - GAP);
    const step = found.width / names.length;
    names.forEach((name, at) => {
      const x = step * (at + 0.5) - span / 2;
      const one = { id: name, name, x, width: span, tier: tier + 1, height: BAR, items: [] };
      byName.set(name, one);
      found.switches.push(one);
    });
  });
  const arcs = [];
  for (const trunk of found.trunks) {
    const [a, b] = [byName.get(trunk.from), byName.get(trunk.to)].sort((p, q) => p.x - q.x);
    Object.assign(trunk, { a, b, left: a.x + a.width / 2, right: b.x + b.width / 2 });
    if (a.tier === b.tier) arcs.push(trunk);
  }
  const levels = new Map();
  for (let tier = 0; tier < tiers.length; tier += 1) {
    levels.set(tier, levelsOf(arcs.filter((trunk) => trunk.a.tier === tier)));
  }
  let y = MARGIN;
  for (let tier = tiers.length - 1; tier >= 0; tier -= 1) {
    y += levels.get(tier) ? levels.get(tier) * ARC + 12 : 0;
    for (const one of found.switches) if (one.tier === tier) one.y = y;
    found.bottom = y;
    y += TIER;
  }
  routeTrunks(found);
}

/** Spreads the ends of trunks over their switches, so that they cross little, and routes them. */
function routeTrunks(found) {
  for (const one of found.switches) {
    for (const up of [true, false]) {
      const ends = found.trunks
        .filter((trunk) => trunk.a === one || trunk.b === one)
        .map((trunk) => ({ trunk, other: trunk.a === one ? trunk.b : trunk.a }))
        .filter(({ other }) => (other.tier >= one.tier) === up)
        .map((end) => ({ ...end, key: endKey(one, end.other) }));
      ends.sort((p, q) => p.key - q.key);
      ends.forEach(({ trunk }, at) => {
        const x = one.x + (one.width * (at + 1)) / (ends.length + 1);
        trunk[trunk.a === one ? "ax" : "bx"] = x;
      });
    }
  }
  for (const trunk of found.trunks) Object.assign(trunk, routed(trunk));
}

// Of arcs to one side, the one to the nearest switch is the innermost.
function endKey(one, other) {
  const here = one.x + one.width / 2;
  const there = other.x + other.width / 2;
  if (other.tier !== one.tier) return there;
  return there < here ? -1e6 - there : 1e6 - there;
}

function routed(trunk) {
  const { a, b, ax, bx } = trunk;
  if (a.tier === b.tier) {
    const y = a.y - 10 - trunk.level * ARC;
    const r = 5;
    const path =
      `M${ax} ${a.y}V${y + r}Q${ax} ${y} ${ax + r} ${y}` +
      `H${bx - r}Q${bx} ${y} ${bx} ${y + r}V${b.y}`;
    return { path, textX: (ax + bx) / 2, textY: y - 10 };
  }
  const [low, lowX, high, highX] = a.tier < b.tier ? [a, ax, b, bx] : [b, bx, a, ax];
  const [x1, y1, x2, y2] = [lowX, low.y, highX, high.y + BAR];
  return {
    path: `M${x1} ${y1}L${x2} ${y2}`,
    textX: x1 + (x2 - x1) * 0.4,
    textY: y1 + (y2 - y1) * 0.4,
  };
}

function placeItems(found, leaves, top) {
  let bottom = top;
  for (const leaf of leaves) {
    leaf.items.forEach((item, at) => {
      const column = at % leaf.columns;
      const row = Math.floor(at / leaf.columns);
      const isGroup = item.hosts.length > 1;
      const height = isGroup ? 66 : TILE.height;
      const step = TILE.height + 12;
      Object.assign(item, {
        isGroup,
        switch: leaf,
        column,
        row,
        x: leaf.x + column * (found.tile + TILE.gap),
        y: top + row * (isGroup ? 78 : step),
        width: found.tile,
        height,
      });
      bottom = Math.max(bottom, item.y + height);
      found.items.push(item);
    });
  }
  return bottom;
}

function placeChips(found, leaves, devices, top) {
  let bottom = top;
  for (const leaf of leaves) {
    const names = new Set(leaf.items.flatMap((item) => item.hosts.map((host) => host.name)));
    const own = devices.filter((device) => names.has(device.host));
    const fits = own.length <= leaf.columns;
    const chips = fits ? own.map((device) => [device]) : [own];
    chips.forEach((group, at) => {
      const width = fits ? found.tile : Math.max(found.tile, leaf.width);
      const x = leaf.x + at * (found.tile + TILE.gap);
      found.chips.push({ devices: group, leaf, x, y: top + 14, width, height: CHIP });
      bottom = top + 14 + CHIP;
    });
  }
  return bottom;
}

function placePods(found, pods, top) {
  const fit = Math.max(1, Math.floor((found.width - 2 * MARGIN + GAP) / (POD + GAP)));
  pods.forEach((pod, at) => {
    const x = MARGIN + (at % fit) * (POD + GAP);
    const y = top + 14 + Math.floor(at / fit) * (CHIP + 8);
    found.chips.push({ devices: [pod], x, y, width: POD, height: CHIP });
  });
  return pods.length ? found.chips[found.chips.length - 1].y + CHIP : top;
}

function placeStrips(found, open, top) {
  let y = top;
  for (const item of found.items) {
    if (!item.isGroup || !open.has(item.id)) continue;
    const room = found.width - 2 * MARGIN + TILE.gap;
    const columns = Math.floor(room / (56 + TILE.gap));
    const width = room / columns - TILE.gap;
    const strip = { item, x: MARGIN, y: y + 14, width: found.width - 2 * MARGIN, tiles: [] };
    item.hosts.forEach((host, at) => {
      strip.tiles.push({
        id: host.name,
        hosts: [host],
        x: MARGIN + (at % columns) * (width + TILE.gap),
        y: strip.y + 20 + Math.floor(at / columns) * (TILE.height + 5),
        width,
        height: TILE.height,
        switch: item.switch,
      });
    });
    y = strip.tiles[strip.tiles.length - 1].y + TILE.height;
    strip.height = y - strip.y;
    found.strips.push(strip);
  }
  return y;
}
