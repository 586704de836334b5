# SPDX-License-Identifier: BSD-3-Clause
"""`nupa wire`: adds, lists and removes wires."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.common.verb import add_verb

if TYPE_CHECKING:
    from nupa.fabric import Fabric

_EPILOG = """\
A wire is a host of the fabric that stands for another machine: another NUPA, a guest with
rdma_rxe, or a RoCE adapter.  Packets go by UDP port 4791.  No root is needed.

examples, on two machines:
  nupa up --wire far0=192.0.2.7          on 192.0.2.5
  nupa up --wire far0=192.0.2.5          on 192.0.2.7
  nupa wire ls
  nupa run --host host0 -- ib_send_lat -x 3 -d nupa_rdma0             on one of them
  nupa run --host host0 -- ib_send_lat -x 3 -d nupa_rdma0 192.0.2.7   on the other one
"""
_ADD_EPILOG = """\
HOST is a host without processes.  Programs of other hosts find it by --address as a GID, and have
the local address as a GID of their own, from index 3 on.  A firewall has to let UDP port 4791 in.
--raw needs CAP_NET_RAW, and a firewall of this machine does not see what it receives.
RoCE encrypts nothing: outside of a trusted network, let the wire run in WireGuard or IPsec.

examples:
  nupa wire add host1 --address 192.0.2.7
  nupa wire add host1 --address 2001:db8::7 --listen 2001:db8::5
"""
_REMOVE_EPILOG = """\
Requests that wait for the wire complete with a retry error.

examples:
  nupa wire remove far0
"""
_LS_EPILOG = """\
STATE is STARTING until something comes from there; DOWN if the network refuses packets or nothing
comes back; DEAD if the keeper has died.  The round trip is measured by datagrams of connection
management; `-`: the other end does not answer them.  NAT: another address that packets of the other
end come from or were made for.  RoCE does not pass NAT, since the addresses are in its checksum.

examples:
  nupa wire ls
  nupa wire ls --json | jq '.[] | {host, state, rtt_ns}'
"""


def add_parser(subparsers: Subparsers) -> None:
    what = "reach other machines by RoCE v2: hosts that stand for them"
    parser = add_command(subparsers, "wire", what, _EPILOG)
    add_fabric(parser)
    verbs = parser.add_subparsers(prog="nupa wire", metavar="COMMAND", required=True)
    add = add_verb(verbs, "add", "make a host a wire", _ADD_EPILOG, _add)
    add.add_argument("host", metavar="HOST")
    add.add_argument("--address", required=True, metavar="ADDRESS", help="of the other machine")
    add.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="use this address of ours (default: the one from which the kernel sends there)",
    )
    add.add_argument(
        "--frames",
        metavar="PATH[,mtu=N]",
        help="listen at this Unix socket for a guest's Ethernet frames (`nupa vm up --nic "
        "stream:PATH,...`) instead of using UDP; --listen is an address for the guest alone",
    )
    add.add_argument(
        "--raw",
        action="store_true",
        help="receive by raw sockets (CAP_NET_RAW; IPv4 only): no wrong packet passes",
    )
    remove = add_verb(verbs, "remove", "end a wire", _REMOVE_EPILOG, _remove)
    remove.add_argument("host", metavar="HOST")
    add_verb(verbs, "ls", "list the wires", _LS_EPILOG, _ls, json=True)


def _add(args: argparse.Namespace, fabric: Fabric) -> None:
    wire = fabric.wires.add(
        args.host, args.address, listen=args.listen, frames=args.frames, raw=args.raw
    )
    print(
        f"{wire.host} is a wire to {wire.address} from {wire.listen}: {wire.medium}, "
        f"{wire.check}, MTU {wire.mtu_bytes}"
    )


def _remove(args: argparse.Namespace, fabric: Fabric) -> None:
    fabric.wires.remove(args.host)


def _ls(args: argparse.Namespace, fabric: Fabric) -> None:
    from nupa.cli.common.text import print_json
    from nupa.cli.wire.tables import wire_table

    wires = [wire.as_json() for wire in fabric.wires]
    if args.json:
        print_json(wires)
    elif wires:
        print(wire_table(wires))
    else:
        print(f"{fabric.name} has no wire: `nupa wire add HOST --address ADDRESS` makes one")
