# SPDX-License-Identifier: BSD-3-Clause
"""`nupa vm`: virtual machines whose CXL memory is the fabric."""

from __future__ import annotations

import argparse

from nupa.cli.common.argument import (
    add_boot_timeout,
    add_fabric,
    add_json,
    add_mover,
    add_program,
    command_of,
    size,
)
from nupa.cli.common.command import Subparsers, add_command, exit_by_signals
from nupa.cli.vm import storage
from nupa.core.mover import Mover

_NAME_HELP = "use this machine and its fabric (default: NUPA_FABRIC, else `vm`, or the only one)"

_EPILOG = """\
QEMU guests share one CXL memory, which holds the fabric.  They see the files of this machine,
read-only, and their own changes to them.  Neither root nor KVM is needed.

examples:
  nupa vm up                                     two guests: host0 and host1; this machine is host2
  nupa vm run host0 -- ib_send_lat               on one terminal, and on another:
  nupa vm run host1 -- ib_send_lat host0
  nupa vm run host0 -- ib_send_lat -R            a guest and this machine connect by the RDMA CM
  nupa vm run host2 -- ib_send_lat -R 10.0.0.1
  nupa vm shell host0
  nupa vm down
"""
_UP_EPILOG = """\
QEMU and the guests' kernel are downloaded once, from the package archive of this machine, to
$NUPA_VM_CACHE, $XDG_CACHE_HOME/nupa/vm or ~/.cache/nupa/vm.  A failure or interruption leaves
nothing.

examples:
  nupa vm up
  nupa vm up --guests 3 --mem 512M
  nupa vm up --kind ivshmem --fabric other       a plain PCI memory device instead of CXL
  nupa vm up --kind ivshmem --doorbell           guests wake each other by interrupts
  nupa vm up --topology qemu/two_hosts.toml
  nupa vm up --qemu /usr/bin/qemu-system-x86_64 --coherence software
  nupa vm up --guests 1 --nic tap:tap0,address=10.1.0.2/24,rxe
"""
_RUN_EPILOG = """\
The command runs in this folder, if the guest has it, with your PATH, HOME, LANG, PYTHON... and the
like.  RDMA is the host's, as with `nupa run`.  The last host is this machine.
Exit code: the command's; 128 + N if signal N ended it; 126 or 127 if it cannot be started.

examples:
  nupa vm run host0 -- ib_write_bw
  nupa vm run host1 -- sh -c 'uname -r; ls -l /dev/nupa0'
  nupa vm run host0 -- tar c /etc | tar t
"""
_SHELL_EPILOG = """\
Without a command, $SHELL runs.  Ctrl-] three times leaves a guest that hangs.

examples:
  nupa vm shell host0
  nupa vm shell host1 -- top
"""
_START_EPILOG = """\
The guest gets the same shared memory; programs attach again.

examples:
  nupa vm start host1
"""
_LS_EPILOG = """\
examples:
  nupa vm ls
  nupa vm ls --json | jq '.[].guests[] | select(.state == "dead").name'
"""
_LOG_EPILOG = """\
examples:
  nupa vm log host0
  nupa vm log --follow
"""
_DOWN_EPILOG = """\
A machine in which commands run stays, unless --force is given.  A machine that is not up is not an
error.

examples:
  nupa vm down
  nupa vm down other --force
"""
_DEMO_EPILOG = """\
Boots two guests and runs unmodified programs in them, by turns.  Perftest runs over NUPA and over
soft-RoCE (the kernel's rdma_rxe), iperf3 over nupa_net0 and over virtio-net.  Then takes all down.
Takes two minutes.  Exit code: 0 if all was measured, else 1.

examples:
  nupa vm demo
  nupa vm demo --kind ivshmem
  nupa vm demo --quick --json | jq '.results[] | {program, ratio, target, met}'
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "vm",
        "run virtual machines on a fabric: up, run, shell, ls, log, start, down, demo, storage",
        _EPILOG,
    )
    _add_name(parser)
    verbs = parser.add_subparsers(prog="nupa vm", metavar="COMMAND", required=True)
    _add_up(verbs)
    _add_inside(
        add_command(
            verbs,
            "run",
            "run a command in a guest",
            _RUN_EPILOG,
            _run,
            usage="nupa vm run [--fabric NAME] [--mover MOVER] HOST -- COMMAND ...",
        )
    )
    _add_inside(
        add_command(
            verbs,
            "shell",
            "run a shell in a guest, on this terminal",
            _SHELL_EPILOG,
            _shell,
            usage="nupa vm shell [--fabric NAME] [--mover MOVER] HOST [-- COMMAND ...]",
        )
    )
    ls = add_command(verbs, "ls", "list machines and their guests", _LS_EPILOG, _ls)
    add_json(ls)
    log = add_command(verbs, "log", "show consoles", _LOG_EPILOG, _log)
    log.add_argument("host", nargs="?", metavar="HOST", help="show this guest alone (default: all)")
    log.add_argument(
        "--follow", action="store_true", help="follow until Ctrl-C or the end of the guests"
    )
    _add_name(log)
    start = add_command(verbs, "start", "start a dead guest again", _START_EPILOG, _start)
    start.add_argument("host", metavar="HOST", help="name or number of the guest's host")
    _add_name(start)
    add_boot_timeout(start)
    down = add_command(verbs, "down", "end the guests, remove the fabric", _DOWN_EPILOG, _down)
    # Not the only one: a machine to take down must be meant.
    add_fabric(down, "name the machine (default: vm)", "--name", positional=True)
    down.add_argument("--force", action="store_true", help="end it even if commands run in it")
    _add_demo(verbs)
    storage.add_parser(verbs)


def _add_name(parser: argparse.ArgumentParser) -> None:
    add_fabric(parser, _NAME_HELP, "--name")


def _add_up(verbs: Subparsers) -> None:
    parser = add_command(verbs, "up", "boot guests", _UP_EPILOG, _up)
    parser.add_argument("--guests", type=int, metavar="N", help="boot N guests (default: 2)")
    parser.add_argument("--kind", help="show the memory as cxl, or as ivshmem (default: cxl)")
    parser.add_argument(
        "--mem", type=size(), metavar="SIZE", help="share this much (default: 256M)"
    )
    parser.add_argument(
        "--coherence",
        help="use hardware, or software: flush and invalidate, no atomics (default: hardware)",
    )
    parser.add_argument(
        "--doorbell",
        action="store_true",
        help="wake sleeping processes of guests by interrupts instead of polling (kind ivshmem)",
    )
    parser.add_argument(
        "--modules",
        action="store_true",
        help="build NUPA's kernel modules, and load them in the guests",
    )
    parser.add_argument(
        "--nic",
        action="append",
        default=[],
        metavar="MEDIUM:TO[,KEY=VALUE...]",
        help="add an interface: stream:SOCKET, tap:NAME or user:PORTS; keys are address, mtu, "
        "guest, and rxe for soft-RoCE",
    )
    parser.add_argument(
        "--topology", metavar="FILE", help="read the machine from TOML; other options override it"
    )
    add_fabric(parser, "name machine and fabric (default: NUPA_FABRIC, else vm)", "--name")
    parser.add_argument(
        "--qemu", metavar="PATH", help="run this qemu-system-x86_64 (default: a downloaded one)"
    )
    add_boot_timeout(parser)


def _add_demo(verbs: Subparsers) -> None:
    what = "measure RDMA and TCP between two guests, beside soft-RoCE and virtio"
    parser = add_command(verbs, "demo", what, _DEMO_EPILOG, _demo)
    parser.add_argument("--kind", help="show the memory as cxl, or as ivshmem (default: cxl)")
    add_json(parser)
    parser.add_argument("--quick", action="store_true", help="measure one round of few iterations")
    parser.add_argument("--keep", action="store_true", help="leave the machine up afterwards")
    add_fabric(parser, "name machine and fabric (default: demo)", "--name")
    parser.add_argument("--qemu", metavar="PATH", help="run this QEMU, as with `nupa vm up`")
    add_boot_timeout(parser)


def _add_inside(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    add_mover(parser, Mover)
    add_program(parser)


def _up(args: argparse.Namespace) -> int:
    from nupa.cli.vm.machine import boot_up

    exit_by_signals()
    print(boot_up(args))
    return 0


def _demo(args: argparse.Namespace) -> int:
    from nupa.cli.vm.demo import run

    exit_by_signals()
    return run(args)


def _start(args: argparse.Namespace) -> int:
    from nupa.cli.vm.machine import say
    from nupa.vm.files.place import meant_name
    from nupa.vm.machine import machine

    exit_by_signals()
    machine.start(args.fabric or meant_name(), args.host, say, timeout_s=args.timeout)
    return 0


def _run(args: argparse.Namespace) -> int:
    from nupa.cli.vm.run import run_in_guest

    return run_in_guest(args.fabric, args.host, command_of(args), mover=args.mover)


def _shell(args: argparse.Namespace) -> int:
    from nupa.cli.vm.run import shell_in_guest

    return shell_in_guest(args.fabric, args.host, command_of(args, []), mover=args.mover)


def _ls(args: argparse.Namespace) -> int:
    from nupa.cli.common.text import print_json
    from nupa.cli.vm.machine import listed
    from nupa.vm.files.shown import machines

    found = machines()
    if args.json:
        print_json(found)
    else:
        print(listed(found))
    return 0


def _log(args: argparse.Namespace) -> int:
    from nupa.cli.vm.machine import print_logs

    return print_logs(args.fabric, args.host, args.follow)


def _down(args: argparse.Namespace) -> int:
    from nupa.cli.vm.machine import take_down
    from nupa.vm.files.place import default_name

    exit_by_signals()
    print(take_down(args.fabric or default_name(), args.force))
    return 0
