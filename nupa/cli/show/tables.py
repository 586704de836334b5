# SPDX-License-Identifier: BSD-3-Clause
"""Tables of `nupa show`: what Fabric.show() returns, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nupa.base.quantity import say_bytes
from nupa.cli.common.text import table

if TYPE_CHECKING:
    from nupa.core.channel import Channel


def tables(
    shown: dict[str, Any], open_channels: list[Channel], *, qps: bool, mrs: bool, counters: bool
) -> str:
    """Returns the report: *shown* with its interfaces, without what is not there."""
    auto = ", goes with its last user" if shown["auto"] else ""
    hosts = [
        [host["name"], host["ipv4"], host["lid"] or "-", host["port"], host["state"]]
        for host in shown["hosts"]
    ]
    columns = {
        "XMIT WORDS": "port_xmit_data",
        "XMIT PACKETS": "port_xmit_packets",
        "RCV WORDS": "port_rcv_data",
        "RCV PACKETS": "port_rcv_packets",
        "DOWNED": "link_downed",
    }
    ports = [
        [port["name"], port["peer"], port["state"], _link(port)]
        + [port["counters"][name] for name in columns.values()]
        for port in shown["ports"]
    ]
    movers = [
        [
            f"{channel.from_host} (pid {channel.from_pid})",
            f"{channel.to_host} (pid {channel.to_pid})",
            channel.mover,
            channel.mover.what,
        ]
        for channel in open_channels
    ]
    host_head = ["HOST", "ADDRESS", "LID", "PORT", "STATE"]
    if places := {host: each["name"] for each in shown["machines"] for host in each["hosts"]}:
        host_head.append("MACHINE")
        hosts = [[*host, places.get(host[0], "-")] for host in hosts]
    parts = [
        f"{shown['name']}: {len(hosts)} hosts{auto}",
        table(host_head, hosts),
        table(["PORT", "PEER", "STATE", "NOMINAL LINK", *columns], ports),
    ]
    if shown["wires"]:
        from nupa.cli.wire.tables import wire_table

        parts.append(wire_table(shown["wires"]))
    if shown["faults"]:
        parts.append(_fault_line(shown["faults"]))
    if shown["machines"]:
        from nupa.cli.trunk.ls import machine_table

        parts.append(machine_table(shown["machines"]))
    parts += _resource_tables(shown, qps=qps, mrs=mrs)
    if movers:
        parts.append(table(["FROM", "TO", "MOVER", "HOW BULK MOVES"], movers))
    if listeners := [
        [at["host"], _program(at), at["space"], at["port"], f"{at['address']} {at['family']}"]
        for at in shown["listeners"]
    ]:
        parts.append(table(["LISTENS ON", "PROGRAM", "SPACE", "PORT", "ADDRESS"], listeners))
    if shown["regions"]:
        from nupa.cli.pool import region_table

        parts.append(region_table(shown["regions"]))
    if errors := _error_rows(shown["hosts"]):
        parts.append(table(["ERRORS AND FAULTS", "HOST", "COUNT", "WHAT IT SAYS"], errors))
    if shown["interfaces"]:
        parts.append(_interface_table(shown["interfaces"]))
    if counters:
        parts.append(_cache_table(shown["hosts"]))
    return "\n\n".join(parts)


def _resource_tables(shown: dict[str, Any], *, qps: bool, mrs: bool) -> list[str]:
    found = []
    if processes := [
        [process["pid"], process["comm"], host["name"], process["qps"], process["mrs"]]
        for host in shown["hosts"]
        for process in host["processes"]
        if not process["net_queue"]
    ]:
        found.append(table(["PID", "PROGRAM", "HOST", "QPS", "MRS"], processes))
    if qps:
        rows = [
            [
                *(f"{qp['number']:#08x}", qp["host"], _program(qp), qp["type"], qp["state"]),
                _partner(qp["partner"]),
                qp["mover"] or "-",
            ]
            for qp in shown["qps"]
        ]
        head = ["QP", "HOST", "PROGRAM", "TYPE", "STATE", "PARTNER", "MOVER"]
        found.append(table(head, rows) if rows else "no queue pairs")
    if mrs:
        rows = [
            [
                *(f"{mr['key']:#010x}", mr["host"], _program(mr), say_bytes(mr["length"], " ")),
                *(f"{mr['iova']:#x}", "window" if mr["window"] else "region"),
                ", ".join(flag.lower() for flag in mr["access"]) or "local read",
                " or ".join(mr["movers"]),
            ]
            for mr in shown["mrs"]
        ]
        head = ["KEY", "HOST", "PROGRAM", "SIZE", "ADDRESS", "KIND", "ACCESS", "MOVER"]
        found.append(table(head, rows) if rows else "no memory regions")
    return found


def _program(entry: dict[str, Any]) -> str:
    """Returns the program and its pid, as far as they are known."""
    if not entry["pid"]:
        return entry["comm"] or "-"
    return f"{entry['comm']} (pid {entry['pid']})"


def _partner(partner: dict[str, Any] | None) -> str:
    if partner is None:
        return "-"
    program = "gone" if partner["comm"] is None else _program(partner)
    return f"{partner['qpn']:#08x} on {partner['host']}, {program}"


def _link(port: dict[str, Any]) -> str:
    return f"{port['speed']} {port['width']}, {port['nominal_gbps']:g} Gb/s"


def _fault_line(faults: list[dict[str, Any]]) -> str:
    many = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    ports = dict.fromkeys(fault["port"] for fault in faults)
    return f"{many} on {', '.join(ports)}: `nupa fault ls`"


def _error_rows(hosts: list[dict[str, Any]]) -> list[list[Any]]:
    from nupa.fabric.counters import HW_NAMES, HW_TRAFFIC

    return [
        [name, host["name"], host["hw_counters"][name], what]
        for name, what in HW_NAMES.items()
        for host in hosts
        if host["hw_counters"][name] and name not in HW_TRAFFIC
    ]


def _cache_table(hosts: list[dict[str, Any]]) -> str:
    from nupa.core.lines import NAMES

    rows = [[host["name"], *[host["cache_requests"][name] for name in NAMES]] for host in hosts]
    return table(["FAST CHANNEL", *NAMES], rows)


def _interface_table(interfaces: list[dict[str, Any]]) -> str:
    from nupa.fabric.counters import NET_DROPS

    def dropped(counters: dict[str, int]) -> int:
        return sum(counters.get(name, 0) for name in NET_DROPS)

    counted = ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes")
    rows = [
        [
            f"{entry['interface']} of {entry['host']}",
            entry["mtu"],
            entry["state"],
            *[entry["counters"].get(name, "-") for name in counted],
            dropped(entry["counters"]),
        ]
        for entry in interfaces
    ]
    head = ["INTERFACE", "MTU", "STATE", "TX PACKETS", "TX BYTES", "RX PACKETS", "RX BYTES"]
    return table([*head, "DROPPED"], rows)
