# SPDX-License-Identifier: BSD-3-Clause
"""`nupa partition`: adds, changes, lists and removes partitions, and their members."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nupa.cli.common.argument import add_fabric, rate
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.common.verb import add_verb

if TYPE_CHECKING:
    from nupa.fabric import Fabric, Partition

_EPILOG = """\
Hosts reach each other if they are members of one partition, and not both limited.  A host of no
tenant that is in no partition is in the default one.  PARTITION is a name, or a P_Key as 0x0012.

examples:
  nupa partition add storage --pkey 0x12
  nupa partition join storage host0               a server, which all members reach
  nupa partition join storage host1 host2 --limited
  nupa partition ls
  nupa run --host host1 -- ib_write_bw host0
"""
_ADD_EPILOG = """\
Only hosts of --tenant can be members.  Without it the partition is the fabric's own, which hosts
of any tenant can join, as for a service that tenants share.  A P_Key has 15 bits, 0x0001 to 0x7ffe;
the bit of full members, 0x8000, is not part of it.

examples:
  nupa partition add storage
  nupa partition add red-data --tenant red --pkey 0x11 --rate 2GB/s --service-level 3
  nupa partition add training --kind vpod         a virtual pod of UALink
"""
_SET_EPILOG = """\
examples:
  nupa partition set storage --rate 500MB/s
  nupa partition set storage --service-level 3 --rate none
"""
_RM_EPILOG = """\
Its members leave, so their queue pairs in it are in error.

examples:
  nupa partition rm storage
  nupa partition rm 0x0012
"""
_LS_EPILOG = """\
A limited member stands in brackets.

examples:
  nupa partition ls
  nupa partition ls --json | jq '.[] | select(.tenant == "red")'
"""
_JOIN_EPILOG = """\
MEMBER is a host by name or number, accelerator:ID (UALink), device:NAME (a CXL device as sld4, or
the tag of a pool region), or tag:UUID (of CXL dynamic capacity).  The first partition of a host
takes the place of the default one, at index 0 of its P_Key table, so unmodified programs use it.
Joining again changes membership, rate and service level.

examples:
  nupa partition join storage host0 host1
  nupa partition join storage host2 --limited --rate 100MB/s
  nupa partition join storage host3 --keep-default
  nupa partition join training accelerator:7 accelerator:8
  nupa partition join red-data device:weights
  nupa partition join red-data tag:6ba7b810-9dad-11d1-80b4-00c04fd430c8
"""
_LEAVE_EPILOG = """\
examples:
  nupa partition leave storage host2
  nupa partition leave training accelerator:7
"""
_PKEY_MAX = 0x7FFF


def add_parser(subparsers: Subparsers) -> None:
    what = "manage partitions: which hosts, accelerators and devices reach each other"
    parser = add_command(subparsers, "partition", what, _EPILOG)
    add_fabric(parser)
    verbs = parser.add_subparsers(prog="nupa partition", metavar="COMMAND", required=True)
    add = add_verb(verbs, "add", "make a partition", _ADD_EPILOG, _add, json=True)
    add.add_argument("partition", metavar="NAME")
    add.add_argument("--tenant", metavar="TENANT", help="make it for hosts of this tenant")
    add.add_argument("--pkey", type=_pkey, metavar="P_KEY", help="take this one (lowest free one)")
    add.add_argument(
        "--kind", choices=["partition", "vpod"], default="partition", help="vpod: as UALink has it"
    )
    change = add_verb(verbs, "set", "change rate and service level", _SET_EPILOG, _set, json=True)
    _add_partition(change)
    for each in (add, change):
        each.add_argument("--rate", type=rate, metavar="RATE", help="limit its traffic, or none")
        _add_level(each)
    _add_partition(add_verb(verbs, "rm", "remove a partition", _RM_EPILOG, _rm))
    add_verb(verbs, "ls", "list partitions and their members", _LS_EPILOG, _ls, json=True)
    join = add_verb(verbs, "join", "add members", _JOIN_EPILOG, _join)
    leave = add_verb(verbs, "leave", "take members out", _LEAVE_EPILOG, _leave)
    for each in (join, leave):
        _add_partition(each)
        each.add_argument("members", nargs="+", metavar="MEMBER")
    join.add_argument("--limited", action="store_true", help="let them reach full members only")
    join.add_argument("--rate", type=rate, metavar="RATE", help="limit each one's traffic, or none")
    _add_level(join)
    join.add_argument(
        "--keep-default", action="store_true", help="leave a host in the default partition, too"
    )


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("partition", metavar="PARTITION", help="its name, or P_Key")


def _add_level(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--service-level", type=_level, metavar="N", help="take this service level, 0 to 15"
    )


def _pkey(text: str) -> int:
    try:
        found = int(text, 0)
    except ValueError:
        found = 0
    if not 0 < found < _PKEY_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a P_Key from 0x0001 to 0x7ffe")
    return found


def _level(text: str) -> int:
    if not text.isdecimal() or int(text) > 15:
        raise argparse.ArgumentTypeError(f"{text!r} is not a service level from 0 to 15")
    return int(text)


def _find(fabric: Fabric, which: str) -> Partition:
    """Finds a partition by its name, else by a P_Key in hexadecimal.  LocalError: there is none."""
    if which.lower().startswith("0x") and which not in fabric.partitions:
        try:
            return fabric.partitions.get(int(which, 16))
        except ValueError:
            pass
    return fabric.partitions.get(which)


def _add(args: argparse.Namespace, fabric: Fabric) -> None:
    partition = fabric.partitions.add(
        args.partition,
        tenant=args.tenant,
        pkey=args.pkey,
        service_level=args.service_level or 0,
        rate=args.rate or 0,
        kind=args.kind,
    )
    if args.json:
        _say(args, partition)
    else:
        print(f"{partition.name}: P_Key {partition.pkey:#06x}")


def _set(args: argparse.Namespace, fabric: Fabric) -> None:
    partition = _find(fabric, args.partition)
    if args.rate is None and args.service_level is None:
        args.parser.error("name what to change: --rate, --service-level")
    partition.set(rate=args.rate, service_level=args.service_level)
    _say(args, partition)


def _say(args: argparse.Namespace, partition: Partition) -> None:
    from nupa.cli.common.text import print_json

    if args.json:
        print_json(partition.as_dict())


def _rm(args: argparse.Namespace, fabric: Fabric) -> None:
    fabric.partitions.remove(_find(fabric, args.partition).name)


def _ls(args: argparse.Namespace, fabric: Fabric) -> None:
    from nupa.cli.common.text import print_json, table
    from nupa.cli.tenant.command import say_rate

    partitions = [partition.as_dict() for partition in fabric.partitions]
    if args.json:
        print_json(partitions)
        return
    rows = [
        [
            partition["name"],
            f"{partition['pkey']:#06x}",
            partition["kind"] if not partition["managed"] else "managed by the subnet manager",
            partition["tenant"] or "-",
            partition["service_level"],
            say_rate(partition["rate"]),
            ",".join(_member(member) for member in partition["members"]) or "-",
        ]
        for partition in partitions
    ]
    print(table(["PARTITION", "P_KEY", "KIND", "TENANT", "SL", "RATE", "MEMBERS"], rows))


def _member(member: dict[str, Any]) -> str:
    from nupa.fabric.tenants.devices import tag_of

    name = member["name"] if member["kind"] == "host" else f"{member['kind']}:{member['name']}"
    tag = tag_of(member["name"]) if member["kind"] == "device" else None
    name = f"tag:{tag}" if tag else name
    return f"({name})" if member["membership"] == "limited" else name


def _join(args: argparse.Namespace, fabric: Fabric) -> None:
    partition = _find(fabric, args.partition)
    level = partition.service_level if args.service_level is None else args.service_level
    for member in map(_named, args.members):
        partition.join(
            member,
            "limited" if args.limited else "full",
            rate=args.rate or 0,
            keep_default=args.keep_default,
            service_level=level,
        )


def _leave(args: argparse.Namespace, fabric: Fabric) -> None:
    partition = _find(fabric, args.partition)
    for member in map(_named, args.members):
        partition.leave(member)


def _named(member: str) -> str:
    """Returns a member as Partition.join() takes it.  LocalError: not a UUID behind `tag:`."""
    from uuid import UUID

    from nupa.base.errors import LocalError
    from nupa.fabric.tenants.devices import tag_name

    kind, _, tag = member.partition(":")
    if kind != "tag":
        return member
    try:
        return f"device:{tag_name(UUID(tag))}"
    except ValueError:
        raise LocalError(f"{member!r}: write 32 hexadecimal digits behind `tag:`") from None
