# SPDX-License-Identifier: BSD-3-Clause
"""`nupa up`: makes a fabric that stays until `nupa down`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric, count, size
from nupa.cli.common.command import Subparsers, add_command
from nupa.topology.topology import EXTENT_BYTES, POOL_BYTES_MAX

if TYPE_CHECKING:
    from nupa.topology.topology import Topology, WireConfig

_EPILOG = """\
docs/topology.md describes topology files.

examples:
  nupa up                                  the preset `pair`: two hosts, one switch
  nupa up --hosts 8 --pool 4G              eight hosts on one switch, and memory that they share
  nupa up --hosts 4 --spare 2              host4 and host5 join later: nupa host add host4
  nupa up --wire far0=192.0.2.7            a host more, which is the machine at 192.0.2.7
  nupa up --topology rack24 --fabric rack  24 hosts
  nupa up --topology tenants               two tenants, which do not reach each other
  nupa up --topology ./lab.toml --fabric lab
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "up", "make a fabric", _EPILOG, run)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument(
        "--hosts", type=count, metavar="N", help="make N hosts on one switch (default: 2)"
    )
    shape.add_argument(
        "--topology",
        metavar="FILE|PRESET",
        help="use a preset (pair, rack24, storage16, gpu24, tenants) or a TOML file (default: "
        "pair)",
    )
    parser.add_argument(
        "--spare",
        type=count,
        metavar="N",
        help="leave N more places on the switch free, for `nupa host add`",
    )
    parser.add_argument(
        "--pool",
        type=size(EXTENT_BYTES, least=EXTENT_BYTES, most=POOL_BYTES_MAX),
        metavar="SIZE",
        help="let hosts share this much memory, as 512M or 4G (default: by their number)",
    )
    parser.add_argument(
        "--wire",
        action="append",
        type=_wire,
        default=[],
        metavar="HOST=ADDRESS[,OURS]",
        help="let HOST stand for the machine at ADDRESS, reached by RoCE v2 (from our address "
        "OURS); may be repeated",
    )
    add_fabric(parser, "name the fabric (default: NUPA_FABRIC, else default)", "--name")


def _wire(text: str) -> WireConfig:
    from nupa.topology.topology import WireConfig

    host, _, addresses = text.partition("=")
    address, _, listen = addresses.partition(",")
    if not host or not address:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST=ADDRESS, as far0=192.0.2.7")
    return WireConfig(host, address, listen)


def _topology(args: argparse.Namespace) -> Topology:
    from nupa.fabric import default_topology
    from nupa.topology import file as topology_file

    if args.spare:
        if args.topology:
            args.parser.error('--spare is for --hosts: a topology file has `state = "absent"`')
        topology = default_topology(args.hosts or 2, args.spare)
    elif args.hosts:
        topology = default_topology(args.hosts)
    else:
        topology = topology_file.load(args.topology or "pair")
    if args.pool is not None:
        topology.segment = topology.segment.with_pool(args.pool)
    if args.wire:
        topology = topology.with_wires(tuple(args.wire))
    return topology


def run(args: argparse.Namespace) -> int:
    from nupa.base.quantity import say_count
    from nupa.fabric import Fabric, registry
    from nupa.fabric.meant import default_name
    from nupa.netdev import state

    topology = _topology(args)
    name = args.fabric or default_name()
    registry.collect_all()
    if name in state.names():
        from nupa.netdev.down import sweep

        sweep(name)
    with Fabric.create(name, topology) as fabric:
        wires = [wire.host for wire in fabric.wires]
        hosts = [host.name for host in fabric.hosts if host.name not in wires]
        switches = len({port.node for port in fabric.ports if port.is_switch})
        parts = [
            *([f"{say_count(len(hosts), 'host')} ({_span(hosts)})"] if hosts else ()),
            *([f"{say_count(len(wires), 'wire')} ({', '.join(wires)})"] if wires else ()),
            f"{switches} {'switch' if switches == 1 else 'switches'}",
        ]
        print(f"{name} is up: {', '.join(parts)}")
    return 0


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
