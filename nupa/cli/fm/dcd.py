# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm dcd-…`: dynamic capacity that is added and released while hosts run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nupa.cxl.fm.client.fabric_manager import FabricManager


def ls(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cli.common.text import print_json, table

    capacity = fm.capacity(args.port)
    info, (regions, limits) = capacity.info(), capacity.regions()
    extents = {host: capacity.extents(host) for host in range(info.hosts)}
    if args.json:
        print_json(
            {
                "total_bytes": info.total_bytes,
                "limits": limits._asdict(),
                "regions": [
                    {
                        "dpa": region.dpa,
                        "size": region.size,
                        "block_bytes": region.block_bytes,
                        "shareable": region.shareable,
                    }
                    for region in regions
                ],
                "hosts": [
                    {
                        "host": host,
                        "extents": [each._asdict() | {"tag": str(each.tag)} for each in has],
                    }
                    for host, has in extents.items()
                ],
            }
        )
        return
    rows = [
        [i, f"{region.dpa:#x}", f"{region.size >> 20} MiB", "yes" if region.shareable else "no"]
        for i, region in enumerate(regions)
    ]
    print(table(["REGION", "DPA", "SIZE", "SHARED"], rows))
    held = [
        [host, f"{each.dpa:#x}", f"{each.size >> 20} MiB", each.tag if each.tag.int else "-"]
        for host, has in extents.items()
        for each in has
    ]
    print("\n" + table(["HOST", "DPA", "SIZE", "TAG"], held))


def add(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cxl.media.dcd import Policy

    policy = Policy.CONTIGUOUS if args.contiguous else Policy.FREE
    policy = policy if args.size else Policy.SHARED
    fm.capacity(args.port).add(args.host, args.region, args.size, tag=args.tag, policy=policy)


def release(args: argparse.Namespace, fm: FabricManager) -> None:
    fm.capacity(args.port).release(args.host, args.tag, forced=args.force)


def tags(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cli.common.text import print_json, table

    found = fm.capacity(args.port).tags()
    if args.json:
        print_json(
            [
                {
                    "tag": str(each.tag),
                    "kept": each.kept,
                    "hosts": sorted(each.accepted),
                    "offered": sorted(each.offered),
                }
                for each in found
            ]
        )
        return
    rows = [
        [each.tag, "yes" if each.kept else "no", _listed(each.accepted), _listed(each.offered)]
        for each in found
    ]
    print(table(["TAG", "KEPT", "HOSTS", "OFFERED TO"], rows))


def _listed(numbers: frozenset[int]) -> str:
    return " ".join(map(str, sorted(numbers))) or "-"


def keep(args: argparse.Namespace, fm: FabricManager) -> None:
    fm.capacity(args.port).keep(args.tag)


def drop(args: argparse.Namespace, fm: FabricManager) -> None:
    fm.capacity(args.port).let_go(args.tag)


def configure(args: argparse.Namespace, fm: FabricManager) -> None:
    fm.capacity(args.port).configure(args.region, args.block, sanitize=args.sanitize)
