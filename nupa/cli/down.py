# SPDX-License-Identifier: BSD-3-Clause
"""`nupa down`: takes fabrics down."""

from __future__ import annotations

import argparse

from nupa.cli.common.argument import add_fabric
from nupa.cli.common.command import Subparsers, add_command, fail

_EPILOG = """\
A fabric in use stays, unless --force is given.  Then its programs keep running, but new ones cannot
find it.  Its network interfaces (`nupa net`) are removed with it.

examples:
  nupa down            the fabric named `default`
  nupa down rack
  nupa down --all
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "down", "take a fabric down", _EPILOG, run)
    what = "take this fabric down (default: NUPA_FABRIC, else `default`)"
    add_fabric(parser, what, positional=True)
    parser.add_argument("--all", action="store_true", help="take down all of your fabrics")
    parser.add_argument("--force", action="store_true", help="take it down even if programs use it")


def run(args: argparse.Namespace) -> int:
    from nupa.fabric import NupaError, registry
    from nupa.fabric.meant import default_name
    from nupa.netdev import state

    if args.all and args.fabric is not None:
        args.parser.error(f"--all takes down all of your fabrics: leave {args.fabric} out")
    if not args.all:
        # Before dead fabrics are collected, because this one may be dead.
        _remove(args.fabric or default_name(), args.force)
        registry.collect_all()
        return 0
    registry.collect_all()
    code = 0
    for name in sorted({*registry.names(), *state.names()}):
        try:
            _remove(name, args.force)
        except NupaError as error:
            code = fail(str(error))
    return code


def _remove(name: str, force: bool) -> None:
    """Removes the fabric and its interfaces; both stay while the fabric is in use."""
    import errno

    from nupa.fabric import Fabric, LocalError, registry
    from nupa.netdev import state
    from nupa.trunk import state as trunk
    from nupa.vm.files.place import is_machine

    if not force and is_machine(name):
        raise LocalError(
            f"the fabric {name!r} belongs to a machine: `nupa vm down {name}` takes both down",
            errno.EBUSY,
        )
    if not force and name in trunk.names():
        raise LocalError(
            f"the fabric {name!r} has a trunk to other machines: `nupa trunk down --fabric {name}` "
            f"takes both down",
            errno.EBUSY,
        )
    had_interfaces = name in state.names()
    if had_interfaces:
        # Imported here because it takes long.
        from nupa.netdev.down import down, in_use_by_others

        if force or not in_use_by_others(name):
            down(name, keep_fabric=True)
    if name in registry.names():
        from nupa.fabric.wires.down import end_wires

        end_wires(name, force)
    try:
        Fabric.remove(name, force=force)
    except LocalError as error:
        if error.errno != errno.ENOENT or not had_interfaces:
            raise
