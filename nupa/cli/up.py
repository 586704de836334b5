# SPDX-License-Identifier: BSD-3-Clause
"""`nupa up`: makes a fabric that stays until `nupa down`."""

from __future__ import annotations

import argparse

from nupa.cli.common.command import Subparsers, add_command

_EPILOG = """\
examples:
  nupa up                                  the preset `pair`: two hosts, one switch
  nupa up --topology rack24 --name rack    24 hosts
  nupa up --topology ./lab.toml --name lab a topology of your own (its TOML: see the presets)
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "up", "make a fabric", _EPILOG, run)
    parser.add_argument(
        "--topology",
        default="pair",
        metavar="FILE|PRESET",
        help="use a preset (pair, rack24, storage16, gpu24) or a TOML file (default: pair)",
    )
    parser.add_argument("--name", default="default", help="name the fabric (default: default)")


def run(args: argparse.Namespace) -> int:
    from nupa.fabric import Fabric, registry
    from nupa.netdev import state
    from nupa.topology import file as topology_file

    topology = topology_file.load(args.topology)
    registry.collect_all()
    if args.name in state.names():
        from nupa.netdev.down import sweep

        sweep(args.name)
    with Fabric.create(args.name, topology) as fabric:
        hosts = fabric.hosts
        switches = {port.node for port in fabric.ports if port.is_switch}
        print(
            f"{args.name} is up: {len(hosts)} hosts ({hosts[0].name} to {hosts[-1].name}), "
            f"{len(switches)} {'switch' if len(switches) == 1 else 'switches'}"
        )
    return 0
