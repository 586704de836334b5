# SPDX-License-Identifier: BSD-3-Clause
"""`nupa run`: runs a program on a host of a fabric, unmodified.

Sets NUPA_FABRIC, NUPA_HOST and NUPA_MOVER, puts the package's libibverbs.so.1 first, and stays as
the program's parent.  It leases the host under the control lock before the program starts
(nupa/fabric/registry.py), so that two `nupa run` at once get two hosts.
"""

from __future__ import annotations

import argparse
import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from nupa.cli.common.argument import add_fabric, add_mover, add_program, command_of, count
from nupa.cli.common.command import Subparsers, add_command
from nupa.core.mover import Mover

_EPILOG = """\
If no fabric is up, one is made (two hosts or --hosts, one switch), which ends with its last user.
Exit code: the program's; 126 or 127 if it cannot be started.  If a signal ends the program, the
same one ends nupa.

environment:
  NUPA_PRELOAD=0     programs keep a libibverbs and librdmacm of their own (RPATH, wheels, conda)
  NUPA_QUIET=1       no hints on stderr

examples:
  nupa run -- ib_send_lat                 on one terminal, and on another:
  nupa run -- ib_send_lat localhost
  nupa run --host host1 --mover relay -- ./my_program --its-own-options
  nupa run --net -- iperf3 -s             TCP over the fabric, too: as `nupa shell`, in one word
  nupa run --capture x.pcapng -- ib_send_lat localhost
  nupa run --record r -- mpirun -n 4 ./app       and then: nupa model replay r --on ib-ndr
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "run",
        "run a program on a host of a fabric",
        _EPILOG,
        run,
        usage="nupa run [--fabric NAME] [--hosts N] [--host HOST] [--net] [--mover MOVER] "
        "[--capture FILE] [--record FOLDER] -- COMMAND ...",
    )
    add_fabric(parser)
    parser.add_argument(
        "--hosts",
        type=count,
        metavar="N",
        help="if no fabric is up, make one of N hosts (default: 2)",
    )
    parser.add_argument(
        "--host",
        help="run on this host, by name or number, as on a machine of its own: 127.0.0.1 is that "
        "host alone (default: the next free one of this machine; with guests: this machine)",
    )
    parser.add_argument(
        "--net",
        action="store_true",
        help="give the program nupa_net0, too, in the network namespace of the host; both are made "
        "if missing, and go with their last user",
    )
    add_mover(parser, Mover, "force how bulk is moved; default: the best that both ends can use")
    parser.add_argument(
        "--capture",
        metavar="FILE",
        help="write a capture as `nupa capture -w` does, until all processes that the program "
        "started have ended",
    )
    parser.add_argument(
        "--capture-level",
        action="append",
        metavar="LEVEL",
        help="record these levels, as with `nupa capture` (default: transport,net)",
    )
    parser.add_argument(
        "--capture-snaplen", type=count, metavar="BYTES", help="keep the first BYTES of each packet"
    )
    parser.add_argument(
        "--record",
        metavar="FOLDER",
        help="record each operation of the program's processes, for `nupa model replay`; "
        "programs that talk to each other share a folder",
    )
    add_program(parser, on_host=False)


def run(args: argparse.Namespace) -> int:
    from nupa.cli.run.own_host import choice
    from nupa.cli.run.program import environment, run_on, tell_if_unreached
    from nupa.fabric import Fabric, LocalError, default_topology

    command = command_of(args)
    if not args.capture and (args.capture_level or args.capture_snaplen is not None):
        args.parser.error("name a file with --capture")
    if args.capture == "-":
        args.parser.error("stdout belongs to the command: name a file with --capture, or a FIFO")
    fabric, host = Fabric.lease(
        args.fabric, args.host, lambda: default_topology(args.hosts or 2), choice
    )
    if args.hosts not in (None, len(fabric.hosts)):
        with fabric:
            raise LocalError(
                f"--hosts {args.hosts}: the fabric {fabric.name!r} is up with "
                f"{len(fabric.hosts)}: leave --hosts out, or take it down (`nupa down "
                f"{fabric.name}`)",
                errno.EEXIST,
            )
    env = environment(fabric.path, host.name, args.mover)
    enter: Callable[[], None] | None = None
    beside: list[AbstractContextManager[object]] = []
    if args.net:
        from nupa.cli.run.inside import entering
        from nupa.netdev import lent

        # Entered here: what it makes is not made with signals blocked.
        interface = ExitStack()
        beside.append(interface)
        enter = entering(fabric, interface.enter_context(lent.use(fabric, host, make=True)), env)
    elif args.host is None:
        # Programs on hosts that we chose are of one machine, and so is their loopback.
        env["NUPA_LOOPBACK"] = "machine"
    tell_if_unreached(command, env)
    if args.capture:
        from nupa.cli.run.captured import captured

        beside.append(captured(fabric, args.capture, args.capture_level, args.capture_snaplen))
    if args.record:
        from nupa.cli.run.recorded import prepare, recorded

        env["NUPA_RECORD"] = prepare(args.record, int(fabric.generation, 16))
        beside.append(recorded(env["NUPA_RECORD"]))
    return run_on(fabric, command, env, enter, _together(beside))


@contextmanager
def _together(managers: Sequence[AbstractContextManager[object]]) -> Iterator[None]:
    with ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager)
        yield
