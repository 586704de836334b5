# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm dcd`: capacity that is added to hosts and taken back while they run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from nupa.cli.common.argument import size

if TYPE_CHECKING:
    from nupa.cxl.fm.client.fabric_manager import FabricManager

LS_EPILOG = """\
examples:
  nupa fm dcd-ls 3
  nupa fm dcd-ls 3 --json | jq '.hosts[].extents'
"""
ADD_EPILOG = """\
HOST is the LD that the host is bound to.  A region that hosts share needs a tag; without SIZE the
host gets what another one has under that tag.

examples:
  nupa fm dcd-add 3 0 0 64M
  nupa fm dcd-add 3 0 1 64M --tag 0f3a0000-0000-0000-0000-000000000001
  nupa fm dcd-add 3 1 1 --tag 0f3a0000-0000-0000-0000-000000000001
"""
RELEASE_EPILOG = """\
examples:
  nupa fm dcd-release 3 0               what it has without a tag
  nupa fm dcd-release 3 0 --tag 0f3a0000-0000-0000-0000-000000000001 --force
"""
TAGS_EPILOG = """\
examples:
  nupa fm dcd-tags 3
  nupa fm dcd-tags 3 --json | jq '.[] | select(.kept)'
"""
KEEP_EPILOG = """\
What hosts share under a tag stays as it is, also once no host has it any more.

examples:
  nupa fm dcd-keep 3 0f3a0000-0000-0000-0000-000000000001
"""
DROP_EPILOG = """\
It is free once no host has it.

examples:
  nupa fm dcd-drop 3 0f3a0000-0000-0000-0000-000000000001
"""
SET_EPILOG = """\
While no host has any of the region.  SIZE of its blocks is a power of two.

examples:
  nupa fm dcd-set 3 0 4M --sanitize     what is given back is cleared
"""


def add_options(
    add: argparse.ArgumentParser, release: argparse.ArgumentParser, size: Callable[[str], int]
) -> None:
    """What comes after their numbers."""
    add.add_argument("size", metavar="SIZE", nargs="?", type=size, default=0, help="like 64M or 1G")
    for parser in (add, release):
        parser.add_argument("--tag", metavar="UUID", type=_tag, default=UUID(int=0))
    add.add_argument("--contiguous", action="store_true", help="in one piece")
    release.add_argument("--force", action="store_true", help="whatever the host says")


def add_more(
    keep: argparse.ArgumentParser, drop: argparse.ArgumentParser, config: argparse.ArgumentParser
) -> None:
    """What comes after their numbers."""
    for parser in (keep, drop):
        parser.add_argument("tag", metavar="UUID", type=_tag)
    config.add_argument("block", metavar="SIZE", type=size(), help="of a block, like 64, 4K or 2M")
    config.add_argument("--sanitize", action="store_true", help="clear what is given back")


def _tag(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: a UUID, of 32 hexadecimal digits") from error


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
