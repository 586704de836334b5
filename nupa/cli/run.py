# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH110, PTH118, PTH120
"""`nupa run`: runs a program on a host of a fabric, unmodified.

Sets NUPA_FABRIC, NUPA_HOST and NUPA_MOVER, puts the package's libibverbs.so.1 first, and stays as
the program's parent.  The host is leased under the control lock before the program starts
(nupa/fabric/registry.py), so that two quick `nupa run` get two hosts.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import TYPE_CHECKING, NoReturn

from nupa.cli import Help, fail
from nupa.core.mover import Mover

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from nupa.fabric import Topology

_LIBRARIES = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "lib")
_SHIM = os.path.join(_LIBRARIES, "libnupa_shim.so")
# As env(1) and timeout(1) have it.
EXIT_CANNOT_RUN = 126
EXIT_NOT_FOUND = 127

# What others may send us and mean for the program.  Not SIGTSTP: a shell stops and continues both.
_FORWARDED = {
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
}
_WAITED = {*_FORWARDED, signal.SIGCHLD}

_EPILOG = """\
With no fabric up, one is made (two hosts, one switch) that goes with its last user.
Exit code: the program's; 126 or 127 if it cannot be started.  If a signal ends the program, the
same one ends nupa.

examples:
  nupa run -- ib_send_lat                 on one terminal, and on another:
  nupa run -- ib_send_lat localhost
  nupa run --host host1 --mover relay -- ./my_program --its-own-options
"""


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "run",
        help="run a program on a host of a fabric",
        usage="nupa run [--fabric NAME] [--host HOST] [--mover MOVER] -- COMMAND ...",
        epilog=_EPILOG,
        formatter_class=Help,
    )
    parser.add_argument(
        "--fabric", metavar="NAME", help="default: the one called default, or the only one"
    )
    parser.add_argument("--host", help="its name or number; default: the next free one")
    parser.add_argument(
        "--mover",
        choices=[str(mover) for mover in Mover],
        help="force how bulk is moved; default: the best that both ends can use",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    from nupa.fabric import Fabric

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        args.parser.error("name a command after --")
    fabric, host = Fabric.lease(args.fabric, args.host, _default_topology)
    # Default: as ignored, our parent's wish, it would leave nothing to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    try:
        with fabric:
            status = _run(command, environment(fabric.path, host.name, args.mover), before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return status if status >= 0 else _die_by(-status)


def _default_topology() -> Topology:
    """The preset `pair`, made without its file: tomllib takes 10 ms to import."""
    from nupa.fabric.topology import star

    return star(2)


def environment(fabric: str, host: str, mover: str | None) -> dict[str, str]:
    """Ours, and what attaches the program: a fabric's path, a host's name, a mover or None."""
    env = dict(os.environ, NUPA_FABRIC=fabric, NUPA_HOST=host)
    env.pop("NUPA_MOVER", None)
    if mover:
        env["NUPA_MOVER"] = mover
    _prepend(env, "LD_LIBRARY_PATH", _LIBRARIES)
    if os.path.exists(_SHIM):
        _prepend(env, "LD_PRELOAD", _SHIM)
        # gcc's sanitizer ends programs in which it is not the first library; it works all the same.
        _prepend(env, "ASAN_OPTIONS", "verify_asan_link_order=0")
    return env


def _prepend(env: dict[str, str], key: str, value: str) -> None:
    # An empty element would mean the current folder (ld.so(8)).
    rest = [part for part in env.get(key, "").split(":") if part and part != value]
    env[key] = ":".join([value, *rest])


def _run(command: list[str], env: dict[str, str], mask: set[int | signal.Signals]) -> int:
    """The program's exit code, or minus the signal that ended it; *mask* is its signal mask."""
    try:
        child = os.posix_spawnp(
            command[0],
            command,
            env,
            setsigmask=mask,
            # What Python itself ignores, as subprocess does.
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
    except OSError as error:
        found = not isinstance(error, FileNotFoundError)
        return fail(
            f"cannot run {command[0]}: {error.strerror}",
            EXIT_CANNOT_RUN if found else EXIT_NOT_FOUND,
        )
    while True:
        got = signal.sigwaitinfo(_WAITED)
        if got.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        # A terminal sends to the whole foreground group (SI_KERNEL, > 0): the program has it.
        elif got.si_code <= 0:
            os.kill(child, got.si_signo)


def _die_by(number: int) -> NoReturn:
    """Ends this process as the program was ended, without a second core dump."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    # Only a signal that by default ends nobody comes here.
    os._exit(128 + number)
