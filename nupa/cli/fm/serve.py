# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm serve`: the switch of a fabric, and the socket of its fabric manager."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING

from nupa.cli.common.argument import size
from nupa.cli.fm import arguments

if TYPE_CHECKING:
    from nupa.cxl.site.fabric_switch import FabricSite

_SIZE = size(256 << 20, least=256 << 20)
_DYNAMIC = size(512 << 20)
HELP = "model the switch of a fabric, until stopped"
EPILOG = """\
Ports are numbered: first one for each host, then those of devices in the order of --sld and --mld,
then empty ones.  SIGTERM or ^C stops the server and removes its socket.  One half of the dynamic
capacity is a region that hosts share.  Hosts accept the capacity that they are offered, and give
back the capacity that they are asked for.  Each host makes a region of each device that it gets.
These are regions of the fabric's pool (`nupa pool ls`) if it has room for all devices, as it has
for the default ones.  Any process maps them:
`fabric.host("host0").map(fabric.pool.find("host0:0x1000000000"))`.

examples:
  nupa fm serve                         a device of 256 MiB for each host
  nupa fm serve --fabric rack --sld 1G --sld 1G --mld 16G --vppbs 8
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    for kind, text in (("sld", "add a device for one host"), ("mld", "add a device with 16 LDs")):
        parser.add_argument(
            f"--{kind}", metavar="SIZE", type=_SIZE, action="append", default=[], help=text
        )
    parser.add_argument(
        "--dcd",
        metavar="SIZE",
        type=_DYNAMIC,
        default=0,
        help="give each MLD this dynamic capacity (default: none)",
    )
    parser.add_argument(
        "--vppbs", metavar="N", type=arguments.byte, default=4, help="give each host N vPPBs (4)"
    )
    parser.add_argument(
        "--spare-ports",
        metavar="N",
        type=arguments.byte,
        default=0,
        help="add N empty ports (default: 0)",
    )


def run(args: argparse.Namespace) -> int:
    from nupa.cxl.fm.server.server import Server, path_of
    from nupa.cxl.site.fabric_switch import FabricSite
    from nupa.fabric import Fabric
    from nupa.fabric.wiring import topology_of
    from nupa.topology.topology import MemoryConfig

    if args.dcd and not args.mld:
        args.parser.error("--dcd is memory of the devices of --mld: add one")
    with Fabric.open(args.fabric) as fabric:
        hosts = len(fabric.hosts)
        slds = args.sld or ([] if args.mld else [256 << 20] * hosts)
        memory = [MemoryConfig(each) for each in slds]
        memory += [MemoryConfig(each, logical=True, dynamic_bytes=args.dcd) for each in args.mld]
        wiring = topology_of(fabric.name, fabric.hosts, fabric.ports)
        site = FabricSite(fabric, wiring, memory, vppbs=args.vppbs, spare_ports=args.spare_ports)
        with site, Server(site.manager, path_of(fabric.name)) as server:
            ends = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
            before = [signal.signal(number, lambda *_: server.stop()) for number in ends]
            try:
                site.use()
                _greet(fabric.name, site)
                server.run()
            finally:
                for number, handler in zip(ends, before, strict=True):
                    signal.signal(number, handler)
    return 0


def _greet(name: str, site: FabricSite) -> None:
    """Prints what is served, and whether other processes can map it."""
    switches, ports = len(site.hosts), len(site.switch.ports)
    print(
        f"{name}: {switches} virtual switches, {ports} ports; `nupa fm ls` shows them", flush=True
    )
    if not site.is_published:
        print(
            f"the pool of {name} has no room for {site.total_bytes >> 20} MiB of devices, and "
            "other processes cannot map them: set a larger pool_bytes in the topology",
            file=sys.stderr,
            flush=True,
        )
