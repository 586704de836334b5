# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm`: memory, quality of service and registers of devices."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nupa.cxl.fm.client.fabric_manager import FabricManager


def lds(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cli.common.text import print_json, table

    found, shares = fm.logical_devices(args.port), fm.bandwidth(args.port)
    if args.json:
        print_json(found._asdict() | {"bandwidth_256ths": shares})
        return
    rows = [
        [ld, f"{size >> 20} MiB", share]
        for ld, (size, share) in enumerate(zip(found.lds, shares, strict=True))
    ]
    free = found.memory_bytes - sum(found.lds)
    print(table(["LD", "MEMORY", "BANDWIDTH/256"], rows))
    print(f"\n{free >> 20} MiB of {found.memory_bytes >> 20} MiB are free")


def alloc(args: argparse.Namespace, fm: FabricManager) -> None:
    fm.allocate(args.port, args.ld, args.size)


def qos(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.base.errors import LocalError
    from nupa.cli.common.text import print_json, table

    now = fm.qos(args.port)
    changes = dict(args.change)
    if unknown := changes.keys() - now._asdict().keys():
        raise LocalError(f"{min(unknown)!r} is not a setting: choose {', '.join(now._fields)}")
    if changes:
        now = fm.set_qos(args.port, now._replace(**changes))
    if args.json:
        print_json(now._asdict())
    else:
        print(table(["SETTING", "VALUE"], list(now._asdict().items())))


def bandwidth(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cli.common.text import print_json, table

    if args.parts:
        fm.set_bandwidth(args.port, args.first, args.parts, limit=args.limit)
    now = fm.bandwidth(args.port, limit=args.limit)
    if args.json:
        print_json(now)
    else:
        print(table(["LD", "OF 256"], list(enumerate(now))))


def config(args: argparse.Namespace, fm: FabricManager) -> None:
    if args.ld is None:
        if args.write is not None:
            fm.ppb_write(args.port, args.offset, args.write)
        print(f"{fm.ppb_read(args.port, args.offset):#010x}")
        return
    if args.write is not None:
        fm.ld_config_write(args.port, args.ld, args.offset, args.write)
    print(f"{fm.ld_config_read(args.port, args.ld, args.offset):#010x}")


def memory(args: argparse.Namespace, fm: FabricManager) -> None:
    if args.write is not None:
        fm.ld_write(args.port, args.ld, args.offset, args.write)
        return
    found = fm.ld_read(args.port, args.ld, args.offset, args.length)
    for at in range(0, len(found), 16):
        print(f"{args.offset + at:#010x}  {found[at : at + 16].hex(' ', 4)}")
