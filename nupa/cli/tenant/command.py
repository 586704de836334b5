# SPDX-License-Identifier: BSD-3-Clause
"""`nupa tenant`: adds, changes, lists and removes tenants, and gives hosts to them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric, count, limit, rate, size
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.common.verb import add_verb

if TYPE_CHECKING:
    from nupa.fabric import Fabric, Quotas, Tenant

_EPILOG = """\
A tenant has hosts, partitions, a rate and quotas.  Hosts of different tenants do not reach each
other.  docs/tenants.md says what is kept apart, and what is not.

examples:
  nupa tenant add red --rate 1GB/s --qps 64 --pool 1G
  nupa tenant assign red host0 host1
  nupa partition add red-data --tenant red
  nupa partition join red-data host0 host1
  nupa tenant ls
"""
_ADD_EPILOG = """\
Rates have a unit: 10MB/s, 1GiB/s, 10Gb/s.  Sizes are in bytes, or as 64K, 512M, 1G.

examples:
  nupa tenant add red
  nupa tenant add blue --rate 10Gb/s --qps 1024 --registered 4G --pool 1G
"""
_SET_EPILOG = """\
Values that are not named stay as they are.  A quota below the present use takes nothing away, but
nothing more is given.

examples:
  nupa tenant set red --rate 500MB/s
  nupa tenant set red --rate none --pool 2G
"""
_RM_EPILOG = """\
examples:
  nupa tenant rm red
  nupa tenant rm red --force            release its hosts and remove its partitions first
"""
_LS_EPILOG = """\
examples:
  nupa tenant ls
  nupa tenant ls --json | jq '.[] | select(.rate == 0).name'
"""
_SHOW_EPILOG = """\
examples:
  nupa tenant show red
  nupa tenant show red --json
"""
_ASSIGN_EPILOG = """\
A host has one tenant.  It leaves the partitions that it is in, so its queue pairs are in error.

examples:
  nupa tenant assign red host0 host1
"""
_RELEASE_EPILOG = """\
A host without a tenant is in the default partition.

examples:
  nupa tenant release red host1
"""
#: Options and their quotas.
_QUOTAS = {
    "qps": ("N", count, "queue pairs"),
    "mrs": ("N", count, "memory regions"),
    "registered": ("SIZE", size(), "registered bytes"),
    "pool": ("SIZE", size(), "bytes of the pool"),
    "attachments": ("N", count, "attachments of processes"),
}
_FIELDS = {"registered": "registered_bytes", "pool": "pool_bytes"}


def add_parser(subparsers: Subparsers) -> None:
    what = "manage tenants: their hosts, rates and quotas"
    parser = add_command(subparsers, "tenant", what, _EPILOG)
    add_fabric(parser)
    verbs = parser.add_subparsers(prog="nupa tenant", metavar="COMMAND", required=True)
    add = add_verb(verbs, "add", "make a tenant", _ADD_EPILOG, _add, json=True)
    change = add_verb(verbs, "set", "change rate and quotas", _SET_EPILOG, _set, json=True)
    for each in (add, change):
        each.add_argument("tenant", metavar="TENANT")
        each.add_argument(
            "--rate", type=rate, metavar="RATE", help="limit all its traffic, or none"
        )
        for option, (metavar, of, noun) in _QUOTAS.items():
            each.add_argument(
                f"--{option}", type=limit(of), metavar=metavar, help=f"limit its {noun}, or none"
            )
    remove = add_verb(verbs, "rm", "remove a tenant", _RM_EPILOG, _rm)
    remove.add_argument("tenant", metavar="TENANT")
    remove.add_argument(
        "--force", action="store_true", help="release its hosts, remove its partitions"
    )
    add_verb(verbs, "ls", "list tenants", _LS_EPILOG, _ls, json=True)
    show = add_verb(
        verbs, "show", "show a tenant, and what it uses", _SHOW_EPILOG, _show, json=True
    )
    show.add_argument("tenant", metavar="TENANT")
    for name, what, epilog, work in (
        ("assign", "give hosts to a tenant", _ASSIGN_EPILOG, _assign),
        ("release", "take hosts from a tenant", _RELEASE_EPILOG, _release),
    ):
        verb = add_verb(verbs, name, what, epilog, work)
        verb.add_argument("tenant", metavar="TENANT")
        verb.add_argument("hosts", nargs="+", metavar="HOST", help="name or number of a host")


def _add(args: argparse.Namespace, fabric: Fabric) -> None:
    from nupa.fabric import Quotas

    tenant = fabric.tenants.add(args.tenant, rate=args.rate or 0, quotas=_quotas(args, Quotas()))
    _say(args, tenant)


def _set(args: argparse.Namespace, fabric: Fabric) -> None:
    tenant = fabric.tenants.get(args.tenant)
    if args.rate is None and all(getattr(args, option) is None for option in _QUOTAS):
        args.parser.error("name what to change: --rate, --" + ", --".join(_QUOTAS))
    tenant.set(rate=args.rate, quotas=_quotas(args, tenant.quotas))
    _say(args, tenant)


def _quotas(args: argparse.Namespace, now: Quotas) -> Quotas:
    given = {option: getattr(args, option) for option in _QUOTAS}
    return now._replace(
        **{_FIELDS.get(key, key): value for key, value in given.items() if value is not None}
    )


def _say(args: argparse.Namespace, tenant: Tenant) -> None:
    from nupa.cli.common.text import print_json

    if args.json:
        print_json(tenant.as_dict())


def _rm(args: argparse.Namespace, fabric: Fabric) -> None:
    fabric.tenants.remove(args.tenant, force=args.force)


def _ls(args: argparse.Namespace, fabric: Fabric) -> None:
    from nupa.cli.common.text import print_json, table

    tenants = [tenant.as_dict() for tenant in fabric.tenants]
    if args.json:
        print_json(tenants)
    elif tenants:
        rows = [
            [
                tenant["name"],
                say_rate(tenant["rate"]),
                ",".join(tenant["hosts"]) or "-",
                ",".join(tenant["partitions"]) or "-",
            ]
            for tenant in tenants
        ]
        print(table(["TENANT", "RATE", "HOSTS", "PARTITIONS"], rows))
    else:
        print(f"{fabric.name} has no tenants: `nupa tenant add NAME` makes one")


def _show(args: argparse.Namespace, fabric: Fabric) -> None:
    from nupa.base.quantity import say_bytes
    from nupa.cli.common.text import print_json, table

    tenant = fabric.tenants.get(args.tenant).as_dict()
    if args.json:
        print_json(tenant)
        return
    print(f"tenant {tenant['name']}: rate {say_rate(tenant['rate'])}")
    print(f"hosts: {', '.join(tenant['hosts']) or 'none'}")
    print(f"partitions: {', '.join(tenant['partitions']) or 'none'}\n")
    rows = []
    for name, used in tenant["used"].items():
        say = say_bytes if name.endswith("_bytes") else str
        bound = tenant["quotas"][name]
        rows.append([name.replace("_", " "), say(used), say(bound) if bound else "none"])
    print(table(["QUOTA", "USED", "LIMIT"], rows))


def say_rate(rate_bytes: int) -> str:
    """Prints a limit of bytes a second; 0: none."""
    from nupa.base import quantity

    return quantity.say_rate(rate_bytes) if rate_bytes else "none"


def _assign(args: argparse.Namespace, fabric: Fabric) -> None:
    tenant = fabric.tenants.get(args.tenant)
    for host in [fabric.host(host) for host in args.hosts]:  # all are found before one is given
        tenant.assign(host)


def _release(args: argparse.Namespace, fabric: Fabric) -> None:
    tenant = fabric.tenants.get(args.tenant)
    for host in [fabric.host(host) for host in args.hosts]:
        tenant.release(host)
