# SPDX-License-Identifier: BSD-3-Clause
"""`nupa net`: network interfaces of hosts, whose frames cross the fabric."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric, add_json, add_program, command_of
from nupa.cli.common.command import EXIT_ERROR, Subparsers, add_command, exit_by_signals, fail

if TYPE_CHECKING:
    from nupa.netdev.up import UpReport

_EPILOG = """\
Each host gets a network namespace with nupa_net0.  No root is needed where user namespaces are
allowed.

examples:
  nupa net up                              all hosts of the fabric, made if none is up
  nupa net exec host0 -- ping 10.0.0.2     a program in the namespace of host0
  nupa shell host0                         the same, with RDMA on that host
  nupa net down
"""
_UP_EPILOG = """\
If no fabric is up, one is made (two hosts, one switch), which `nupa net down` removes again.
Interfaces that are up stay as they are.  Broken ones are repaired: a dead pump is replaced, a
namespace that vanished is made again.  If a step fails, all that was made is removed.  A host that
is a wire (`nupa wire`) gets none: wires carry RDMA, and no IP of nupa_net0.

examples:
  nupa net up
  nupa net up --fabric rack --mtu 9000
  nupa net up --host host0 --netns /run/netns/blue    into an existing namespace (ip-netns(8))
  nupa net up --host host1 --netns 4711               into that of a process or container
  nupa vm run host0 -- nupa net up                    in a guest: its host's, in its own network
"""
_DOWN_EPILOG = """\
Programs in the namespaces continue without the interface.

examples:
  nupa net down
  nupa net down --fabric rack
"""
_LS_EPILOG = """\
examples:
  nupa net ls
  nupa net ls --json | jq -r '.[] | select(.state != "up").host'
"""
_KERNELS = "nupa_net0 is this kernel's own (module nupa_net)"
_EXEC_EPILOG = """\
The program sees the interfaces of that host, in /sys, too.  Without root it runs as root of a user
namespace: ip and ping work, and its files are yours.
Exit code: the program's; 126 or 127 if it cannot be started.  If a signal ends the program, the
same one ends nupa.

examples:
  nupa net exec host0 -- ip addr
  nupa net exec host1 -- iperf3 -s            on one terminal, and on another:
  nupa net exec host0 -- iperf3 -c 10.0.0.2
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "net", "manage network interfaces over the fabric: up, down, ls, exec", _EPILOG
    )
    add_fabric(parser)
    verbs = parser.add_subparsers(prog="nupa net", metavar="COMMAND", required=True)
    _add_up(verbs)
    add_fabric(add_command(verbs, "down", "remove the interfaces of a fabric", _DOWN_EPILOG, _down))
    ls = add_command(verbs, "ls", "list interfaces", _LS_EPILOG, _ls)
    add_fabric(ls)
    add_json(ls)
    execute = add_command(
        verbs,
        "exec",
        "run a program in the namespace of a host",
        _EXEC_EPILOG,
        _exec,
        usage="nupa net exec [--fabric NAME] HOST -- COMMAND ...",
    )
    add_fabric(execute)
    add_program(execute)


def _add_up(verbs: Subparsers) -> None:
    what = "make the interfaces of a fabric's hosts, or repair them"
    parser = add_command(verbs, "up", what, _UP_EPILOG, _up)
    add_fabric(parser)
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        help="make the interface of this host only; may be given again (default: of all that "
        "are ready)",
    )
    parser.add_argument(
        "--mtu", type=int, metavar="BYTES", help="set the MTU, from 68 (default: 65280)"
    )
    parser.add_argument(
        "--queues", type=int, metavar="N", help="give each interface N queues, 1 to 16 (default: 1)"
    )
    parser.add_argument(
        "--netns",
        metavar="PATH|PID",
        help="put the interface of the one --host into this namespace",
    )


def _up(args: argparse.Namespace) -> int:
    from nupa.netdev.up import up
    from nupa.netdev.wish import Wish

    exit_by_signals()
    wish = Wish(args.host, args.mtu, args.queues, args.netns)
    report = up(args.fabric, wish)
    print(_told(report))
    for host, why in report.lost.items():
        fail(f"{host}: {why}")
    return EXIT_ERROR if report.lost else 0


def _told(report: UpReport) -> str:
    lines = []
    if report.kernels:
        return f"{report.fabric}: {_KERNELS}; nothing to do"
    if report.made:
        mtu = report.made[0].mtu_bytes
        names = [f"{host.name} ({host.ipv4})" for host in report.made]
        shown = names if len(names) <= 2 else [names[0], "…", names[-1]]
        lines.append(f"{report.fabric}: nupa_net0 is up on {', '.join(shown)}; MTU {mtu}")
    for host, words in report.healed.items():
        lines.append(f"{report.fabric}: {host} is healed: {', '.join(words)}")
    if not lines and not report.lost:
        where = "its host" if len(report.up) == 1 else f"its {len(report.up)} hosts"
        lines.append(f"{report.fabric}: nupa_net0 is up already on {where}; nothing to do")
    if report.made_fabric and report.made:
        lines.append(f"the fabric {report.fabric} was made for it: `nupa net down` removes it")
    return "\n".join(lines)


def _down(args: argparse.Namespace) -> int:
    from nupa.fabric import registry
    from nupa.fabric.users import users
    from nupa.netdev import state
    from nupa.netdev.down import down

    report = down(state.meant_name(args.fabric))
    if report.fabric_is == "in use":
        by = users(registry.path_of(report.fabric))
        print(f"the fabric {report.fabric} stays: it is in use{by}")
    for host, why in report.left.items():
        fail(f"the interface of {host} stays: {why}")
    return EXIT_ERROR if report.left else 0


def _ls(args: argparse.Namespace) -> int:
    from nupa.cli.common.text import print_json, table
    from nupa.fabric import FabricError
    from nupa.netdev import interface, state
    from nupa.netdev.view import interfaces

    found, code = [], 0
    for name in [state.meant_name(args.fabric)] if args.fabric else state.names():
        try:
            found += interfaces(name)
        except FabricError as error:
            code = fail(str(error))
    if args.json:
        print_json(found)
    elif found:
        head = ["FABRIC", "HOST", "ADDRESS", "MTU", "QUEUES", "NAMESPACE", "STATE"]
        keys = ["fabric", "host", "ipv4", "mtu", "queues", "netns", "state"]
        print(table(head, [[entry[key] for key in keys] for entry in found]))
    elif interface.is_of_the_kernel():
        print(f"{_KERNELS}: `ip addr show nupa_net0`, `ethtool -S nupa_net0`")
    else:
        print("no interface is up: `nupa net up` makes them")
    return code


def _exec(args: argparse.Namespace) -> int:
    from nupa.cli.run.inside import run_inside

    return run_inside(args.fabric, args.host, command_of(args), verbs=False)
