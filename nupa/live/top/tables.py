# SPDX-License-Identifier: BSD-3-Clause
"""Tables of a snapshot: their names, columns and rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa.base.quantity import say_bytes
from nupa.fabric.counters import NET_DROPS
from nupa.live.rates import TrafficRate
from nupa.live.top.cell import Cell, TopRow, amount, count, share, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nupa.live.snapshot import Snapshot

_NO_RATE = TrafficRate()


class TopTable(NamedTuple):
    """A table.  lists: its rows are in snapshots with lists alone."""

    name: str
    columns: tuple[str, ...]
    rows: Callable[[Snapshot], Iterator[TopRow]]
    lists: bool = False


def _traffic(rate: TrafficRate, *, packets: bool = True) -> list[Cell]:
    """Returns cells: bytes sent and received, packets of both, errors; all per second."""
    both = [amount(rate.xmit_packets + rate.rcv_packets)] if packets else []
    return [amount(rate.xmit_bytes), amount(rate.rcv_bytes), *both, amount(rate.errors)]


_TRAFFIC = ("TX B/s", "RX B/s", "PKT/s", "ERR/s")


def _hosts(snapshot: Snapshot) -> Iterator[TopRow]:
    rates = snapshot.rates.hosts if snapshot.rates else {}
    for host in snapshot.fabric["hosts"]:
        name, programs = host["name"], [at for at in host["processes"] if not at["net_queue"]]
        control = host.get("control_state", "ready")
        cells = [
            text(name),
            text(host["state"] if control == "ready" else control),
            text(host.get("tenant")),
            count(len(programs)),
            *(count(sum(program[of] for program in programs)) for of in ("qps", "mrs")),
            *_traffic(rates.get(name, _NO_RATE)),
        ]
        yield TopRow(name, tuple(cells))


def _links(snapshot: Snapshot) -> Iterator[TopRow]:
    rates = {link.port: link for link in snapshot.rates.links} if snapshot.rates else {}
    ports = {port["name"]: port for port in snapshot.fabric["ports"]}
    seen: set[str] = set()
    for name, port in ports.items():
        if name in seen:
            continue
        seen.add(port["peer"])
        link, peer = rates.get(name), ports[port["peer"]]
        up = port["state"] == peer["state"] == "ACTIVE"
        rate = link.rate if link else _NO_RATE
        cells = [
            text(name),
            text(port["peer"]),
            text("ACTIVE" if up else "DOWN"),
            *_traffic(rate, packets=False),
            share(max(link.xmit_load, link.rcv_load) if link else 0.0),
            count(port["counters"]["link_downed"]),
        ]
        yield TopRow(name, tuple(cells))


def _programs(snapshot: Snapshot) -> Iterator[TopRow]:
    for host in snapshot.fabric["hosts"]:
        for at in host["processes"]:
            if not at["net_queue"]:
                cells = (
                    *(count(at["pid"]), text(at["comm"]), text(host["name"])),
                    *(count(at["qps"]), count(at["mrs"]), text(at["state"]), count(at["uid"])),
                )
                yield TopRow(str(at["slot"]), cells)


def _qps(snapshot: Snapshot) -> Iterator[TopRow]:
    for qp in snapshot.fabric["qps"]:
        partner = qp["partner"]
        cells = (
            *(Cell(f"{qp['number']:#08x}", qp["number"]), text(qp["host"]), text(_program(qp))),
            *(text(qp["type"]), text(qp["state"])),
            text(f"{partner['qpn']:#08x} {partner['host']}" if partner else None),
            text(qp["mover"]),
        )
        yield TopRow(f"{qp['slot']}/{qp['number']}", cells)


def _mrs(snapshot: Snapshot) -> Iterator[TopRow]:
    for mr in snapshot.fabric["mrs"]:
        cells = (
            *(Cell(f"{mr['key']:#010x}", mr["key"]), text(mr["host"]), text(_program(mr))),
            Cell(say_bytes(mr["length"]), mr["length"]),
            text("window" if mr["window"] else "region"),
            text(" or ".join(mr["movers"])),
            text(", ".join(flag.lower() for flag in mr["access"]) or "local read"),
        )
        yield TopRow(f"{mr['slot']}/{mr['key']}", cells)


def _program(entry: dict[str, Any]) -> str:
    return f"{entry['comm']} {entry['pid'] or ''}".strip()


def _tenants(snapshot: Snapshot) -> Iterator[TopRow]:
    rates = snapshot.rates.tenants if snapshot.rates else {}
    for tenant in snapshot.fabric["tenants"]:
        used, quotas = tenant["used"], tenant["quotas"]
        cells = [
            text(tenant["name"]),
            count(len(tenant["hosts"])),
            *_traffic(rates.get(tenant["name"], _NO_RATE), packets=False),
            amount(tenant["rate"]),
            *(_of_quota(used[name], quotas[name]) for name in ("qps", "mrs", "pool_bytes")),
        ]
        yield TopRow(tenant["name"], tuple(cells))


def _of_quota(used: int, quota: int) -> Cell:
    said = amount(used).text
    return Cell(f"{said}/{amount(quota).text}" if quota else said, used)


def _partitions(snapshot: Snapshot) -> Iterator[TopRow]:
    for partition in snapshot.fabric["partitions"]:
        members = partition["members"]
        cells = (
            text(partition["name"]),
            Cell(f"{partition['pkey']:#06x}", partition["pkey"]),
            text(partition["tenant"]),
            text(partition["kind"]),
            *(count(partition["service_level"]), amount(partition["rate"]), count(len(members))),
            text(" ".join(_member(member) for member in members)),
        )
        yield TopRow(str(partition["pkey"]), cells)


def _member(member: dict[str, Any]) -> str:
    return f"{member['name']}{'' if member['membership'] == 'full' else '(limited)'}"


def _faults(snapshot: Snapshot) -> Iterator[TopRow]:
    for fault in snapshot.fabric["faults"]:
        cells = (
            *(count(fault["id"]), text(fault["port"]), text(fault["kind"])),
            share(fault["probability"]),
            *(count(fault["seen"]), count(fault["hits"])),
            text("ended" if fault["ended"] else "active"),
        )
        yield TopRow(str(fault["id"]), cells)


def _net(snapshot: Snapshot) -> Iterator[TopRow]:
    rates = snapshot.rates.interfaces if snapshot.rates else {}
    for at in snapshot.interfaces:
        cells = [
            *(text(at["host"]), text(at["state"]), text(at["ipv4"])),
            *(count(at["mtu"]), count(at["queues"]), count(at["pump"])),
            *_traffic(rates.get(at["host"], _NO_RATE)),
            count(sum(at["counters"].get(name, 0) for name in NET_DROPS)),
        ]
        yield TopRow(at["host"], tuple(cells))


def _vms(snapshot: Snapshot) -> Iterator[TopRow]:
    for machine in snapshot.machines:
        for guest in machine.get("guests", ()):
            cells = (
                *(text(machine["name"]), text(guest["name"]), text(guest["state"])),
                *(text(guest["pid"]), amount(guest["uptime_s"] or 0), text(guest["wakeup"])),
                Cell(say_bytes(guest["device_bytes"]), guest["device_bytes"]),
            )
            yield TopRow(guest["name"], cells)


def _events(snapshot: Snapshot) -> Iterator[TopRow]:
    for event in reversed(snapshot.events):
        at = time.strftime("%X", time.localtime(event["time_ns"] / 1e9))
        cells = (
            *(count(event["seq"]), text(at), text(event["severity"])),
            *(text(event["kind"]), text(event["subject"]), text(event["text"])),
        )
        yield TopRow(str(event["seq"]), cells)


_TENANT_COLUMNS = ("TENANT", "HOSTS", "TX B/s", "RX B/s", "ERR/s", "LIMIT", "QPS", "MRS", "POOL")
_PARTITION_COLUMNS = ("PARTITION", "P_KEY", "TENANT", "KIND", "SL", "LIMIT", "MEMBERS", "NAMES")
#: In the order in which they are shown.
TABLES = {
    table.name: table
    for table in (
        TopTable("Hosts", ("HOST", "STATE", "TENANT", "PROGS", "QPS", "MRS", *_TRAFFIC), _hosts),
        TopTable(
            "Links",
            ("PORT", "PEER", "STATE", "TX B/s", "RX B/s", "ERR/s", "LOAD", "DOWNED"),
            _links,
        ),
        TopTable("Programs", ("PID", "PROGRAM", "HOST", "QPS", "MRS", "STATE", "USER"), _programs),
        TopTable("QPs", ("QP", "HOST", "PROGRAM", "TYPE", "STATE", "PARTNER", "MOVER"), _qps, True),
        TopTable("MRs", ("KEY", "HOST", "PROGRAM", "SIZE", "KIND", "MOVER", "ACCESS"), _mrs, True),
        TopTable("Tenants", _TENANT_COLUMNS, _tenants),
        TopTable("Partitions", _PARTITION_COLUMNS, _partitions),
        TopTable("Faults", ("ID", "PORT", "KIND", "CHANCE", "SEEN", "HITS", "STATE"), _faults),
        TopTable(
            "Net",
            ("HOST", "STATE", "ADDRESS", "MTU", "QUEUES", "PUMP", *_TRAFFIC, "DROPPED"),
            _net,
        ),
        TopTable("VMs", ("MACHINE", "GUEST", "STATE", "PID", "UP s", "WAKEUP", "DEVICE"), _vms),
        TopTable("Events", ("SEQ", "TIME", "SEVERITY", "KIND", "SUBJECT", "TEXT"), _events),
    )
}
