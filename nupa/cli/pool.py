# SPDX-License-Identifier: BSD-3-Clause
"""`nupa pool`: manages memory that hosts share: regions and quotas."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nupa.cli.common.argument import add_fabric, add_json
from nupa.cli.common.command import EXIT_USAGE, Subparsers, add_command, fail

if TYPE_CHECKING:
    from nupa.fabric import Pool

_EPILOG = """\
A region is memory of the fabric's pool.  A host owns it, and others can share it; programs map it
by host.map() in Python.  A region of a program ends with the program, unless others share it.  A
region of `nupa pool alloc` belongs to its host and stays until it is freed.

examples:
  nupa pool alloc 64M log --share host1     owned by host0, shared with host1
  nupa pool ls
  nupa pool free log
  nupa pool quota host1 1G                  the limit for regions of host1
"""
_LS_EPILOG = """\
OWNER is a host, or a process there.  WINDOWS counts mappings of all processes.  A region is an
orphan if its owner has died and others share it: free it, or let one of them adopt it.

examples:
  nupa pool ls
  nupa pool ls --leaks                      orphans, and regions of hosts without programs
  nupa pool ls --json | jq '.[] | select(.mapped == 0).tag'
"""
_ALLOC_EPILOG = """\
SIZE is in bytes, or as 64K, 512M, 1G.  The memory is allocated at once, and zero.

examples:
  nupa pool alloc 1G cache --share all
  nupa pool alloc 64K queue --host host1 --share host0,host2 --coherence software
"""
_FREE_EPILOG = """\
With --force, regions with open windows are freed, too.  Loads through those windows then return
all ones.

examples:
  nupa pool free log
  nupa pool free 0x10000 0x20001
  nupa pool free cache --force
"""
_QUOTA_EPILOG = """\
A quota below the memory in use revokes nothing.

examples:
  nupa pool quota                           of all hosts
  nupa pool quota host1 1G
  nupa pool quota host1 none
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "pool", "manage memory that hosts share: regions and quotas", _EPILOG
    )
    add_fabric(parser)
    verbs = parser.add_subparsers(prog="nupa pool", metavar="COMMAND", required=True)
    ls = _add(verbs, "ls", "list regions", _LS_EPILOG, _ls)
    ls.add_argument("--leaks", action="store_true", help="list regions that seem unused, and why")
    alloc = _add(verbs, "alloc", "make a region", _ALLOC_EPILOG, _alloc)
    alloc.add_argument("size", metavar="SIZE")
    alloc.add_argument("tag", metavar="TAG", nargs="?", default="", help="name of the region")
    alloc.add_argument(
        "--share",
        metavar="HOSTS",
        default="",
        help="share the region with host1,host2 or all (default: none)",
    )
    alloc.add_argument("--host", metavar="HOST", help="let this host own it (default: the first)")
    alloc.add_argument("--coherence", choices=["hardware", "software"], default="hardware")
    free = _add(verbs, "free", "free regions", _FREE_EPILOG, _free, json=False)
    free.add_argument("regions", metavar="TAG|ID", nargs="+")
    free.add_argument("--force", action="store_true", help="free regions with open windows, too")
    quota = _add(verbs, "quota", "show or set the limit of a host's regions", _QUOTA_EPILOG, _quota)
    quota.add_argument("host", metavar="HOST", nargs="?")
    quota.add_argument("size", metavar="SIZE|none", nargs="?")


def _add(
    verbs: Subparsers,
    name: str,
    what: str,
    epilog: str,
    command: Any,
    *,
    json: bool = True,
) -> argparse.ArgumentParser:
    def run(args: argparse.Namespace) -> int:
        from nupa.base.quantity import byte_count
        from nupa.fabric import Fabric, LocalError

        try:
            size: str | None = getattr(args, "size", None)
            unlimited = size == "none" and name == "quota"
            args.bytes = None if size is None or unlimited else byte_count(size)
        except LocalError as error:
            return fail(str(error), EXIT_USAGE)
        with Fabric.open(args.fabric) as fabric:
            code: int = command(args, fabric.pool)
        return code

    parser = add_command(verbs, name, what, epilog, run)
    add_fabric(parser)
    if json:
        add_json(parser)
    return parser


def region_table(regions: list[dict[str, Any]]) -> str:
    """Returns a table of regions, as Region.as_dict() has them."""
    from nupa.base.quantity import say_bytes
    from nupa.cli.common.text import table

    rows = [
        [
            region["id"],
            region["tag"] or "-",
            say_bytes(region["size"]),
            f"{region['host']} (pid {region['pid']})" if region["pid"] else region["host"],
            ",".join(region["share"]) or "-",
            region["coherence"],
            region["mapped"],
            ", ".join(name for name in ("published", "orphan", "revoked") if region[name]) or "-",
        ]
        for region in regions
    ]
    head = ["REGION", "TAG", "SIZE", "OWNER", "SHARED WITH", "COHERENCE", "WINDOWS", "STATE"]
    return table(head, rows)


def _ls(args: argparse.Namespace, pool: Pool) -> int:
    from nupa.cli.common.text import print_json, table

    if args.leaks:
        leaks = pool.leaks()
        if args.json:
            print_json([leak.region.as_dict() | {"why": leak.why} for leak in leaks])
        elif leaks:
            rows = [
                [f"{leak.region.id:#x}", leak.region.tag or "-", leak.owner, leak.why]
                for leak in leaks
            ]
            print(table(["REGION", "TAG", "OWNER", "WHY IT IS LISTED"], rows))
        else:
            print("no leaks")
        return 0
    regions = [region.as_dict() for region in pool.regions()]
    if args.json:
        print_json(regions)
    elif regions:
        print(region_table(regions))
    else:
        print("no regions: `nupa pool alloc SIZE TAG` makes one")
    return 0


def _alloc(args: argparse.Namespace, pool: Pool) -> int:
    from nupa.base.quantity import say_bytes
    from nupa.cli.common.text import print_json

    share = args.share if args.share == "all" else [host for host in args.share.split(",") if host]
    region = pool.alloc(
        args.bytes,
        args.tag,
        share,
        host=args.host,
        coherence=args.coherence,
        keep=True,
    )
    if args.json:
        print_json(region.as_dict())
    else:
        shared = f", shared with {', '.join(region.share)}" if region.share else ""
        print(f"{region.id:#x}: {say_bytes(region.size)} of {region.owner.host}{shared}")
    return 0


def _free(args: argparse.Namespace, pool: Pool) -> int:
    # Finds all before it frees any.
    found = [pool.find(_named(word)) for word in args.regions]
    for region in found:
        region.free(args.force)
    return 0


def _named(word: str) -> str | int:
    try:
        return int(word, 16) if word.startswith("0x") else word
    except ValueError:
        return word


def _quota(args: argparse.Namespace, pool: Pool) -> int:
    from nupa.base.quantity import say_bytes
    from nupa.cli.common.text import print_json, table

    if args.size is not None:
        pool.set_quota(args.host, args.bytes)
        if not args.json:
            return 0
    quotas = pool.quotas() if args.host is None else {args.host: pool.quota(args.host)}
    if args.json:
        print_json([{"host": host} | quota._asdict() for host, quota in quotas.items()])
        return 0
    rows = [
        [host, say_bytes(quota.used), "none" if quota.limit is None else say_bytes(quota.limit)]
        for host, quota in quotas.items()
    ]
    print(table(["HOST", "USED", "QUOTA"], rows))
    return 0
