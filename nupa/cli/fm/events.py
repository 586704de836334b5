# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm`: events, and any command as bytes."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nupa.cxl.fm.client.events import FmEvent
    from nupa.cxl.fm.client.fabric_manager import FabricManager


def _described(event: FmEvent) -> dict[str, object]:
    return {
        "port": event.port,
        "log": event.log.name.lower(),
        "text": event.text,
        "timestamp_ns": event.event.timestamp_ns,
        "record": str(event.event.kind),
        "lost": event.lost,
    }


def _line(event: FmEvent) -> str:
    import time

    seconds, ns = divmod(event.event.timestamp_ns, 1_000_000_000)
    clock = time.strftime("%H:%M:%S", time.localtime(seconds))
    log = event.log.name.lower().replace("_", " ")
    return f"{clock}.{ns // 1_000_000:03}  {log:16}  {event.text}"


def events(args: argparse.Namespace, fm: FabricManager) -> None:
    import json

    from nupa.cli.common.text import print_json

    if not args.follow:
        found = fm.events()
        if args.json:
            print_json([_described(event) for event in found])
        for event in () if args.json else found:
            print(_line(event))
        if lost := max((event.lost for event in found), default=0):
            print(f"{lost} more had no room in their log", file=sys.stderr)
        return
    try:
        for event in fm.follow():
            print(json.dumps(_described(event)) if args.json else _line(event), flush=True)
    except KeyboardInterrupt:
        return


def send(args: argparse.Namespace, fm: FabricManager) -> None:
    if args.port is None:
        answer = fm.request(args.opcode, args.payload, cci=args.cci)
    else:
        answer = fm.tunnel(args.port, args.opcode, args.payload, ld=args.ld)
    for at in range(0, len(answer), 16):
        print(f"{at:04x}  {answer[at : at + 16].hex(' ')}")
