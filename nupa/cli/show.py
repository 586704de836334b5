# SPDX-License-Identifier: BSD-3-Clause
"""`nupa show`: hosts, ports, processes, movers, regions, counters, errors and faults."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nupa.cli.common.argument import add_fabric, add_json
from nupa.cli.common.command import Subparsers, add_command

if TYPE_CHECKING:
    from nupa.core.channel import Channel

# Fields of struct nupa_net_counters (csrc/segment/layout/layout.h): dropped frames.
_DROPS = ("tx_unknown", "tx_down", "tx_full", "tx_invalid", "rx_invalid", "rx_refused")

_EPILOG = """\
The speed of a link is nominal: no transfer is slowed down to it (`nupa fault add bandwidth` does
that).  Its Gb/s are the next lower rate of InfiniBand, as in ibstat, ibv_devinfo and sysfs.
Data is counted in words of 4 bytes, as in InfiniBand (port_xmit_data, port_rcv_data).  Errors and
faults are listed if they are not 0, including those of ended programs; --json has all counters.
--counters shows what the fast channel caused at each host's cache: requests (RdOwn, RdOwnNoData,
RdShared) and snoops (SnpData, SnpInv).  The numbers are derived, and a lower bound.

examples:
  nupa show
  nupa show --counters
  nupa show rack --json | jq '.ports[] | select(.state == "DOWN").name'
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "show", "show a fabric: hosts, ports, processes, movers, counters", _EPILOG, run
    )
    add_fabric(parser, positional=True)
    parser.add_argument(
        "--counters", action="store_true", help="show the fast channel as CXL.cache requests, too"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.cli.common.text import print_json
    from nupa.core.channel import channels
    from nupa.fabric import Fabric

    with Fabric.open(args.fabric) as fabric:
        shown, open_channels = fabric.show(), channels(fabric)
        shown["interfaces"] = _interfaces(fabric.name)
    if args.json:
        print_json(shown)
    else:
        print(_text(shown, open_channels))
        if args.counters:
            print(f"\n{_cache_table(shown['hosts'])}")
    return 0


def _interfaces(name: str) -> list[dict[str, Any]]:
    from nupa.netdev import state

    if name not in state.names():
        return []
    from nupa.netdev.view import interfaces

    return interfaces(name)


def _text(shown: dict[str, Any], open_channels: list[Channel]) -> str:
    from nupa.cli.common.text import table

    auto = ", goes with its last user" if shown["auto"] else ""
    hosts = [
        [host["name"], host["ipv4"], host["lid"] or "-", host["port"], host["state"]]
        for host in shown["hosts"]
    ]
    processes = [
        [process["pid"], process["comm"], host["name"], process["qps"], process["mrs"]]
        for host in shown["hosts"]
        for process in host["processes"]
        if not process["net_queue"]
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
    parts = [
        f"{shown['name']}: {len(hosts)} hosts{auto}",
        table(["HOST", "ADDRESS", "LID", "PORT", "STATE"], hosts),
        table(["PORT", "PEER", "STATE", "NOMINAL LINK", *columns], ports),
    ]
    if shown["faults"]:
        parts.append(_fault_line(shown["faults"]))
    if processes:
        parts.append(table(["PID", "PROGRAM", "HOST", "QPS", "MRS"], processes))
    if movers:
        parts.append(table(["FROM", "TO", "MOVER", "HOW BULK MOVES"], movers))
    if listeners := [
        [at["host"], at["pid"], at["space"], at["port"], f"{at['address']} {at['family']}"]
        for at in shown["listeners"]
    ]:
        parts.append(table(["LISTENS ON", "PID", "SPACE", "PORT", "ADDRESS"], listeners))
    if shown["regions"]:
        from nupa.cli.pool import region_table

        parts.append(region_table(shown["regions"]))
    if errors := _error_rows(shown["hosts"]):
        parts.append(table(["ERRORS AND FAULTS", "HOST", "COUNT", "WHAT IT SAYS"], errors))
    if shown["interfaces"]:
        parts.append(_interface_table(shown["interfaces"]))
    return "\n\n".join(parts)


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
    from nupa.cli.common.text import table
    from nupa.core.lines import NAMES

    rows = [[host["name"], *[host["cache_requests"][name] for name in NAMES]] for host in hosts]
    return table(["FAST CHANNEL", *NAMES], rows)


def _interface_table(interfaces: list[dict[str, Any]]) -> str:
    from nupa.cli.common.text import table

    def dropped(counters: dict[str, int]) -> int:
        return sum(counters.get(name, 0) for name in _DROPS)

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
