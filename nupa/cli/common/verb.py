# SPDX-License-Identifier: BSD-3-Clause
"""Commands below a command, each of which works on an open fabric."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric, add_json
from nupa.cli.common.command import Subparsers, add_command

if TYPE_CHECKING:
    from nupa.fabric import Fabric


def add_verb(
    verbs: Subparsers,
    name: str,
    what: str,
    epilog: str,
    work: Callable[[argparse.Namespace, Fabric], None],
    *,
    json: bool = False,
) -> argparse.ArgumentParser:
    """Adds a command with --fabric, and --json if it prints; *work* is given the open fabric."""

    def run(args: argparse.Namespace) -> int:
        from nupa.fabric import Fabric

        with Fabric.open(args.fabric) as fabric:
            work(args, fabric)
        return 0

    parser = add_command(verbs, name, what, epilog, run)
    add_fabric(parser)
    if json:
        add_json(parser)
    return parser
