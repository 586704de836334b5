# SPDX-License-Identifier: BSD-3-Clause
"""`nupa ls`: lists this user's fabrics."""

from __future__ import annotations

import argparse
from typing import Any

from nupa.cli.common.argument import add_json
from nupa.cli.common.command import Subparsers, add_command


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "ls",
        "list fabrics",
        "examples:\n  nupa ls\n  nupa ls --json | jq -r '.[].name'\n",
        run,
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.cli.common.text import print_json, table
    from nupa.fabric import registry

    registry.collect_all()
    found = [_entry(name) for name in registry.names()]
    if args.json:
        print_json(found)
    elif found:
        rows = [
            [
                entry["name"],
                entry.get("hosts", "-"),
                entry.get("processes", "-"),
                entry.get("interfaces", "-"),
                entry["error"] or ("up, goes with its last user" if entry["auto"] else "up"),
            ]
            for entry in found
        ]
        print(table(["FABRIC", "HOSTS", "PROCESSES", "INTERFACES", "STATE"], rows))
    else:
        print("no fabric is up: `nupa up` makes one")
    return 0


def _entry(name: str) -> dict[str, Any]:
    from nupa.base.ownership import owner_of
    from nupa.core.segment import Segment
    from nupa.fabric import NupaError, registry

    path = registry.path_of(name)
    try:
        segment = Segment.open(path)
    except NupaError as error:
        return {"name": name, "path": path, "owner": owner_of(path), "error": str(error)}
    try:
        segment.reap()
        slots = list(segment.slots())
        return {
            "name": name,
            "path": path,
            "owner": owner_of(path),
            "error": None,
            "auto": segment.auto,
            "hosts": len(segment.hosts()),
            "processes": sum(not slot.net_queue for slot in slots),
            "interfaces": len({slot.host for slot in slots if slot.net_queue}),
        }
    finally:
        segment.close()
