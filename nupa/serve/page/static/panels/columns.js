// SPDX-License-Identifier: BSD-3-Clause
// Columns of the tables.

import { rateOf } from "../rates.js";
import { sayBytes, sayCount, sayDuration, sayPkey, sayRate } from "../say.js";

const list = (values) => (values ?? []).join(", ");
const lower = (value) => String(value ?? "").toLowerCase();
const count = { number: true, say: sayCount };
const bytes = { number: true, say: sayBytes };
const rate = { number: true, say: sayRate };
const limit = (say) => ({ number: true, say: (value) => (value ? say(value) : "no limit") });

export function hostColumns(state) {
  const of = (row) => rateOf(state().rates, row.port);
  return [
    { name: "Host", of: (row) => row.name },
    { name: "Address", of: (row) => row.ipv4 },
    { name: "Port", of: (row) => lower(row.state), mark: (row) => upMark(row.state) },
    { name: "State", of: (row) => row.control_state ?? "ready" },
    { name: "Tenant", of: (row) => row.tenant ?? "" },
    { name: "P_Keys", of: (row) => list((row.pkeys ?? []).filter(Boolean).map(sayPkey)), code: true },
    { name: "Sends", of: (row) => of(row).tx, ...rate },
    { name: "Receives", of: (row) => of(row).rx, ...rate },
    { name: "Processes", of: (row) => row.processes.length, ...count },
    { name: "QPs", of: (row) => sum(row.processes, "qps"), ...count },
    { name: "MRs", of: (row) => sum(row.processes, "mrs"), ...count },
    { name: "Errors", of: (row) => errorsOf(row), ...count },
  ];
}

export function portColumns(state) {
  const of = (row) => rateOf(state().rates, row.name);
  return [
    { name: "Port", of: (row) => row.name },
    { name: "Peer", of: (row) => row.peer },
    { name: "State", of: (row) => lower(row.state), mark: (row) => upMark(row.state) },
    { name: "Link", of: (row) => `${row.width} ${row.speed}` },
    { name: "Nominal Gb/s", of: (row) => row.nominal_gbps, number: true },
    { name: "Sends", of: (row) => of(row).tx, ...rate },
    { name: "Receives", of: (row) => of(row).rx, ...rate },
    { name: "Packets/s", of: (row) => Math.round(of(row).packets), ...count },
    { name: "Sent", of: (row) => row.counters.port_xmit_data * 4, ...bytes },
    { name: "Received", of: (row) => row.counters.port_rcv_data * 4, ...bytes },
    { name: "Waits", of: (row) => row.counters.port_xmit_wait, ...count },
    { name: "Discards", of: (row) => row.counters.port_xmit_discards, ...count },
    { name: "Downed", of: (row) => row.counters.link_downed, ...count },
  ];
}

export const QPS = [
  { name: "QP", of: (row) => row.number, code: true, say: (value) => `0x${value.toString(16)}` },
  { name: "Host", of: (row) => row.host },
  { name: "Program", of: (row) => `${row.comm} (${row.pid})` },
  { name: "Type", of: (row) => row.type },
  { name: "State", of: (row) => row.state, mark: (row) => (row.state === "ERR" ? "bad" : null) },
  { name: "P_Key", of: (row) => (row.pkey === undefined ? "" : sayPkey(row.pkey)), code: true },
  { name: "Partner", of: (row) => partner(row.partner) },
  { name: "Mover", of: (row) => row.mover ?? "" },
];

export const MRS = [
  { name: "Key", of: (row) => row.key, code: true },
  { name: "Host", of: (row) => row.host },
  { name: "Program", of: (row) => `${row.comm} (${row.pid})` },
  { name: "Address", of: (row) => row.iova, code: true },
  { name: "Length", of: (row) => row.length, ...bytes },
  { name: "Kind", of: (row) => (row.window ? "memory window" : "region") },
  { name: "Access", of: (row) => lower(list(row.access)).replaceAll("_", " ") },
  { name: "Movers", of: (row) => list(row.movers) },
];

export const TENANTS = [
  { name: "Tenant", of: (row) => row.name },
  { name: "Hosts", of: (row) => row.hosts },
  { name: "Partitions", of: (row) => row.partitions },
  { name: "Rate limit", of: (row) => row.rate, ...limit(sayRate) },
  { name: "QPs", of: (row) => row.used("qps"), number: true, say: (_, row) => row.share("qps", sayCount) },
  { name: "MRs", of: (row) => row.used("mrs"), number: true, say: (_, row) => row.share("mrs", sayCount) },
  {
    name: "Registered",
    of: (row) => row.used("registered_bytes"),
    number: true,
    say: (_, row) => row.share("registered_bytes", sayBytes),
  },
  {
    name: "Pool",
    of: (row) => row.used("pool_bytes"),
    number: true,
    say: (_, row) => row.share("pool_bytes", sayBytes),
  },
  {
    name: "Attachments",
    of: (row) => row.used("attachments"),
    number: true,
    say: (_, row) => row.share("attachments", sayCount),
  },
];

export const MEMBERS = [
  { name: "Member", of: (row) => row.member },
  { name: "Kind", of: (row) => row.kind },
  { name: "Partition", of: (row) => row.partition },
  { name: "P_Key", of: (row) => sayPkey(row.pkey), code: true },
  { name: "Tenant", of: (row) => row.tenant },
  { name: "Membership", of: (row) => row.membership },
  { name: "Rate limit", of: (row) => row.rate, ...limit(sayRate) },
  { name: "Service level", of: (row) => row.service_level, number: true },
];

export const REGIONS = [
  { name: "Region", of: (row) => row.id, code: true },
  { name: "Tag", of: (row) => row.tag },
  { name: "Size", of: (row) => row.size, ...bytes },
  { name: "Owner", of: (row) => row.host },
  { name: "Shared with", of: (row) => list(row.share) },
  { name: "Ways", of: (row) => row.ways, number: true },
  { name: "Mapped", of: (row) => row.mapped, ...count },
  { name: "State", of: (row) => (row.revoked ? "revoked" : row.orphan ? "orphan" : "in use") },
];

/** Returns the columns of faults; *clear*(fault) makes the cell of a button, null: none. */
export function faultColumns(clear) {
  const columns = [
    { name: "Fault", of: (row) => row.id },
    { name: "Port", of: (row) => row.port },
    { name: "Kind", of: (row) => row.kind },
    { name: "Parameters", of: parameters },
    { name: "Packets seen", of: (row) => row.seen, ...count },
    { name: "Packets hit", of: (row) => row.hits, ...count },
    { name: "State", of: (row) => (row.ended ? "ended" : "active") },
  ];
  if (clear) columns.push({ name: "", of: () => "", button: clear });
  return columns;
}

export const TRANSFERS = [
  { name: "#", of: (row) => row.number },
  { name: "From", of: (row) => row.from },
  { name: "To", of: (row) => row.to },
  { name: "What", of: (row) => row.what },
  { name: "Bytes", of: (row) => row.bytes, ...bytes },
  { name: "Start", of: (row) => row.start_ns, number: true, say: sayDuration },
  { name: "Duration", of: (row) => row.duration_ns, number: true, say: sayDuration },
  { name: "Records", of: (row) => row.records, ...count },
  { name: "Flags", of: (row) => list(row.flags), mark: (row) => (row.flags.length ? "warn" : null) },
];

/** Returns rows of the table of tenants, of a snapshot. */
export function tenantRows(snapshot) {
  return snapshot.tenants.map((tenant) => ({
    name: tenant.name,
    rate: tenant.rate ?? 0,
    hosts: list(
      tenant.hosts ??
        snapshot.hosts.filter((host) => host.tenant === tenant.name).map((host) => host.name),
    ),
    partitions: list(
      snapshot.partitions.filter((one) => one.tenant === tenant.name).map((one) => one.name),
    ),
    used: (name) => tenant.used?.[name] ?? 0,
    share: (name, say) => {
      const most = tenant.quotas?.[name] ?? 0;
      return `${say(tenant.used?.[name] ?? 0)}${most ? ` of ${say(most)}` : ""}`;
    },
  }));
}

/** Returns a row for each member of a partition. */
export function memberRows(snapshot) {
  return snapshot.partitions.flatMap((partition) =>
    (partition.members ?? []).map((member) => ({
      member: member.name,
      kind: member.kind,
      partition: partition.name,
      pkey: partition.pkey,
      tenant: partition.tenant ?? "",
      membership: member.membership,
      rate: member.rate ?? 0,
      service_level: member.service_level ?? 0,
    })),
  );
}

/** Returns the number of errors of a host: counters, without those of traffic. */
export function errorsOf(host) {
  const traffic = new Set(["multicast_xmit_packets", "multicast_rcv_packets", "rx_injected"]);
  return Object.entries(host.hw_counters)
    .filter(([name]) => !traffic.has(name))
    .reduce((all, [, value]) => all + value, 0);
}

/** Returns the options of a fault in words. */
export function parameters(fault) {
  const found = [];
  if (fault.bytes_per_s) found.push(`at most ${sayRate(fault.bytes_per_s)}`);
  if (fault.duration_ns) found.push(`of ${sayDuration(fault.duration_ns)}`);
  if (fault.probability < 1) found.push(`probability ${+(fault.probability * 100).toPrecision(4)} %`);
  if (fault.after) found.push(`after ${sayCount(fault.after)}`);
  if (fault.count) found.push(fault.count === 1 ? "once" : `${sayCount(fault.count)} times`);
  if (fault.for_ns) found.push(`for ${sayDuration(fault.for_ns)} more`);
  return found.join(", ");
}

function upMark(state) {
  return lower(state) === "active" ? "good" : "bad";
}

function partner(found) {
  if (!found) return "";
  return `${found.host} 0x${found.qpn.toString(16)}${found.comm ? ` ${found.comm} (${found.pid})` : ""}`;
}

function sum(rows, name) {
  return rows.reduce((all, row) => all + row[name], 0);
}
