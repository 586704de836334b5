# SPDX-License-Identifier: BSD-3-Clause
"""`nupa trunk ls`: the machines of a fabric, as this one or each of them sees the others."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nupa.base.quantity import say_bytes
from nupa.cli.common.command import EXIT_ERROR, fail
from nupa.cli.common.text import print_json, table

if TYPE_CHECKING:
    from nupa.trunk.file import ClusterText


def run(args: argparse.Namespace) -> int:
    from nupa.trunk import state, view
    from nupa.trunk.file import read

    if args.file is not None:
        return _asked(args, read(args.file))
    if args.ssh is not None:
        args.parser.error("--ssh is for a FILE, whose machines are asked")
    if args.fabric is None and not state.names():
        if args.json:
            print_json([])
        else:
            print("no trunk is up here: `nupa trunk up FILE` starts one")
        return 0
    shown = view.part(state.meant_name(args.fabric))
    if args.json:
        print_json(shown)
        return 0
    print(f"{shown['fabric']}: this machine is {shown['machine']}; trunk: {shown['trunk']}")
    print(machine_table(shown["machines"]))
    return 0


def machine_table(machines: list[dict[str, Any]]) -> str:
    """Returns the machines as text: what nupa.trunk.view.part() lists."""
    rows = [
        [
            machine["name"],
            f"{machine['address']}:{machine['port']}",
            _hosts(machine["hosts"]),
            machine["state"],
            _time(machine.get("rtt_ns")),
            _bytes(machine.get("sent_bytes")),
            _bytes(machine.get("received_bytes")),
        ]
        for machine in machines
    ]
    head = ["MACHINE", "ADDRESS", "HOSTS", "STATE", "ROUND TRIP", "SENT", "RECEIVED"]
    return table(head, rows)


def _hosts(hosts: list[str]) -> str:
    return ", ".join(hosts) if len(hosts) <= 3 else f"{hosts[0]} … {hosts[-1]} ({len(hosts)})"


def _time(ns: int | None) -> str:
    return f"{ns / 1000:.1f} µs" if ns else "-"


def _bytes(count: int | None) -> str:
    return "-" if count is None else say_bytes(count, " ")


def _asked(args: argparse.Namespace, files: ClusterText) -> int:
    """Asks each machine of the file."""
    from nupa.trunk import view
    from nupa.trunk.all import look_all
    from nupa.trunk.remote import ssh_words

    cluster = files.parse()
    looks = look_all(cluster.name, cluster.machines, ssh=ssh_words(args.ssh))
    shown = view.asked(cluster, looks)
    if args.json:
        print_json(shown)
    else:
        rows = [
            [
                machine["name"],
                f"{machine['address']}:{machine['port']}",
                _hosts(machine["hosts"]),
                machine["state"],
                ", ".join(machine["joined"]) or "-",
            ]
            for machine in shown["machines"]
        ]
        print(table(["MACHINE", "ADDRESS", "HOSTS", "STATE", "JOINED TO"], rows))
    for machine in shown["machines"]:
        if machine["error"]:
            fail(f"{machine['name']}: {machine['error']}")
    return EXIT_ERROR if any(machine["error"] for machine in shown["machines"]) else 0
