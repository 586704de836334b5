# SPDX-License-Identifier: BSD-3-Clause
"""`nupa host`: lets hosts, accelerators and devices join a fabric, and leave it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nupa.cli.common.argument import add_fabric, seconds
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.common.verb import add_verb

if TYPE_CHECKING:
    from nupa.fabric import Fabric

_EPILOG = """\
A place of the topology that is free is absent: its port is down, and no program runs there.
States: absent, onboarding (being checked), ready, draining, failed.  `nupa events` has each step.

examples:
  nupa up --hosts 4 --spare 2           host4 and host5 are absent
  nupa host add host4
  nupa host drain host0 --wait          wait until its programs have ended
  nupa host remove host0
  nupa host ls
"""
_ADD_EPILOG = """\
The newcomer presents its identity: words as serial=SN0012, or a TOML or JSON file of them.  The
fabric adds link_layer, width, speed and switch of its port.  The admission policy of the topology
judges both; a newcomer that is refused is failed.  A draining host is ready again.

HOST may be accelerator:ID or device:NAME, too: they join the partitions that the policy has.

examples:
  nupa host add host4
  nupa host add host4 --identity vendor=acme serial=SN0012
  nupa host add host4 --identity host4.toml --policy strict.toml
  nupa host add accelerator:7 --identity generation=UALink200G
"""
_DRAIN_EPILOG = """\
Programs that run there stay; no new one attaches.  `nupa host add` makes the host ready again.

examples:
  nupa host drain host0
  nupa host drain host0 --wait --timeout 30s
  nupa host drain accelerator:7         it still sends; requests to it are refused
"""
_REMOVE_EPILOG = """\
The port goes down and the P_Key table is emptied, so queue pairs of the host are in error at once.
The host leaves its tenant and its partitions; an accelerator or a device leaves its partitions.

examples:
  nupa host remove host0
  nupa host remove accelerator:7
"""
_FAIL_EPILOG = """\
As `nupa host remove`, but the host is failed until it is added again.

examples:
  nupa host fail host0 "memory errors"
  nupa host fail device:pool-1 "uncorrectable errors"
"""
_LS_EPILOG = """\
An accelerator or device is listed once it has joined, or is a member of a partition.

examples:
  nupa host ls
  nupa host ls --accelerators
  nupa host ls --devices --json
  nupa host ls --json | jq '.[] | select(.state == "absent").name'
"""


def add_parser(subparsers: Subparsers) -> None:
    what = "let hosts join and leave a fabric that is up"
    parser = add_command(subparsers, "host", what, _EPILOG)
    add_fabric(parser)
    verbs = parser.add_subparsers(prog="nupa host", metavar="COMMAND", required=True)
    add = add_verb(verbs, "add", "let a host join", _ADD_EPILOG, _add, json=True)
    add.add_argument("host", metavar="HOST")
    add.add_argument(
        "--identity",
        nargs="+",
        default=[],
        metavar="FILE|KEY=VALUE",
        help="let it present these properties",
    )
    add.add_argument(
        "--policy", metavar="FILE", help="judge by [admission] of this file, not the fabric's"
    )
    drain = add_verb(verbs, "drain", "keep new programs off a host", _DRAIN_EPILOG, _drain)
    drain.add_argument("host", metavar="HOST")
    drain.add_argument("--wait", action="store_true", help="return when the last program has left")
    drain.add_argument(
        "--timeout", type=seconds(), metavar="TIME", help="with --wait: fail after this time"
    )
    remove = add_verb(verbs, "remove", "take a host out at once", _REMOVE_EPILOG, _remove)
    remove.add_argument("host", metavar="HOST")
    fail = add_verb(verbs, "fail", "give a host up", _FAIL_EPILOG, _fail)
    fail.add_argument("host", metavar="HOST")
    fail.add_argument("why", nargs="?", default="", metavar="WHY", help="the reason, for the event")
    ls = add_verb(verbs, "ls", "list hosts and their states", _LS_EPILOG, _ls, json=True)
    which = ls.add_mutually_exclusive_group()
    which.add_argument("--accelerators", action="store_true", help="list accelerators")
    which.add_argument("--devices", action="store_true", help="list CXL devices and tags")


def _newcomer(word: str) -> tuple[str, str] | None:
    """Returns kind and name of "accelerator:7" or "device:NAME"; None: it names a host."""
    kind, colon, name = word.partition(":")
    return (kind, name) if colon and kind in ("accelerator", "device") else None


def _add(args: argparse.Namespace, fabric: Fabric) -> None:
    from pathlib import Path

    from nupa.cli.common.text import print_json
    from nupa.cli.host.identity import identity
    from nupa.fabric.tenants.onboarding import add_host, admit
    from nupa.topology.tenants_file import load_admission

    presented = identity(args.identity)
    policy = load_admission(Path(args.policy)) if args.policy else None
    if newcomer := _newcomer(args.host):
        verdict = admit(fabric, *newcomer, presented, policy)
        named = args.host
    else:
        verdict = add_host(fabric, args.host, presented, policy)
        named = fabric.host(args.host).name
    if args.json:
        print_json({"name": named, "state": "ready"} | verdict._asdict())
        return
    parts = [f" of tenant {verdict.tenant}" * bool(verdict.tenant)]
    parts += [f" in {', '.join(verdict.partitions)}" * bool(verdict.partitions)]
    print(f"{named} is ready{''.join(parts)} ({verdict.why})")


def _drain(args: argparse.Namespace, fabric: Fabric) -> None:
    from nupa.base.quantity import say_count
    from nupa.fabric.tenants.newcomer import drain
    from nupa.fabric.tenants.onboarding import drain_host

    if args.timeout is not None and not args.wait:
        args.parser.error("--timeout is for --wait")
    if newcomer := _newcomer(args.host):
        if args.wait:
            args.parser.error("--wait is for hosts: no program runs on an accelerator or a device")
        drain(fabric, *newcomer)
        print(f"{args.host} is draining")
        return
    left = drain_host(fabric, args.host, wait=args.wait, timeout=args.timeout)
    name = fabric.host(args.host).name
    print(f"{name} is draining: {say_count(left, 'program')} left")


def _remove(args: argparse.Namespace, fabric: Fabric) -> None:
    from nupa.fabric.tenants.newcomer import remove
    from nupa.fabric.tenants.onboarding import remove_host

    if newcomer := _newcomer(args.host):
        remove(fabric, *newcomer)
        return
    remove_host(fabric, args.host)


def _fail(args: argparse.Namespace, fabric: Fabric) -> None:
    from nupa.fabric.tenants.newcomer import fail
    from nupa.fabric.tenants.onboarding import fail_host

    if newcomer := _newcomer(args.host):
        fail(fabric, *newcomer, args.why)
        return
    fail_host(fabric, args.host, args.why)


def _ls(args: argparse.Namespace, fabric: Fabric) -> None:
    from nupa.cli.common.text import print_json, table
    from nupa.fabric.tenants.onboarding import processes

    if args.accelerators or args.devices:
        _ls_newcomers(args, fabric, "device" if args.devices else "accelerator")
        return
    ports = fabric.ports
    hosts: list[dict[str, Any]] = [
        {
            "name": host.name,
            "state": fabric.host(host.index).control_state,
            "tenant": fabric.host(host.index).tenant,
            "port": ports[host.port].state,
            "pkeys": fabric.host(host.index).pkeys,
            "processes": processes(fabric, host),
        }
        for host in fabric.hosts
    ]
    if args.json:
        print_json(hosts)
        return
    rows = [
        [
            host["name"],
            host["state"],
            host["tenant"] or "-",
            host["port"],
            ",".join(f"{pkey:#06x}" for pkey in host["pkeys"]) or "-",
            host["processes"],
        ]
        for host in hosts
    ]
    print(table(["HOST", "STATE", "TENANT", "PORT", "P_KEYS", "PROGRAMS"], rows))


def _ls_newcomers(args: argparse.Namespace, fabric: Fabric, kind: str) -> None:
    from nupa.cli.common.text import print_json, table
    from nupa.fabric.tenants.newcomer import newcomers

    found = [each for each in newcomers(fabric) if each.kind == kind]
    if args.json:
        print_json([each.as_dict() for each in found])
        return
    rows = [
        [str(each), each.state, ",".join(each.tenants) or "-", ",".join(each.partitions) or "-"]
        for each in found
    ]
    print(table([kind.upper(), "STATE", "TENANT", "PARTITIONS"], rows))
