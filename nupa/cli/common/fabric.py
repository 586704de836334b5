# SPDX-License-Identifier: BSD-3-Clause
"""The fabric of a command line: one spelling, before and behind the command."""

from __future__ import annotations

import argparse


def settle(args: argparse.Namespace) -> None:
    """Sets args.fabric to the name of the fabric, or its path if it has no name; None: none is
    named.

    A wrong command line ends the process.  LocalError: NUPA_UID is not a number.
    """
    named = getattr(args, "named", None)
    if args.fabric is not None and not args.parser.takes("--fabric"):
        args.parser.error("unrecognized arguments: --fabric")
    if named is not None and args.fabric not in (None, named):
        args.parser.error(f"two fabrics are named, {named} and {args.fabric}: name one")
    args.fabric = named if args.fabric is None else args.fabric
    if args.fabric and "/" in args.fabric:
        from nupa.fabric.meant import known

        args.fabric = known(args.fabric)
