# SPDX-License-Identifier: BSD-3-Clause
"""`nupa trunk down`: on all machines, or here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.command import EXIT_ERROR, exit_by_signals, fail

if TYPE_CHECKING:
    from nupa.trunk.cluster import Machine


def run(args: argparse.Namespace) -> int:
    from nupa.fabric import registry
    from nupa.fabric.users import users
    from nupa.trunk import state
    from nupa.trunk.down import down
    from nupa.trunk.file import read

    exit_by_signals()
    if args.file is not None:
        if args.here:
            args.parser.error("--here is for this machine's part: leave FILE out")
        cluster = read(args.file).parse()
        return _everywhere(args, cluster.name, cluster.machines)
    name = state.meant_name(args.fabric)
    if not args.here:
        found = state.load_up(name)
        if found.made_by == "ssh":
            return _everywhere(args, name, found.machines)
        others = [machine.name for machine in found.machines if machine.name != found.machine]
        how = "by hand" if found.made_by == "hand" else "by srun"
        print(f"its parts were started {how}: those of {', '.join(others)} stay up")
    report = down(name, force=args.force)
    if report.fabric_is == "in use":
        by = users(registry.path_of(name))
        print(f"the copy of the fabric {name} stays, without its trunk: it is in use{by}")
    return 0


def _everywhere(args: argparse.Namespace, name: str, machines: tuple[Machine, ...]) -> int:
    from nupa.base.progress import Progress
    from nupa.trunk.all import down_all
    from nupa.trunk.remote import ssh_words

    with Progress(len(machines), quiet_s=1.0, beats=True) as progress:
        answers = down_all(
            name,
            machines,
            ssh=ssh_words(args.ssh),
            force=args.force,
            each=lambda machine, _: progress.step(machine.name),
        )
    for machine, answer in answers.items():
        if answer.error:
            fail(f"{machine}: {answer.error}")
        elif answer.value.get("fabric_is") == "in use":
            print(f"{machine}: its copy stays, without its trunk: programs use it")
    return EXIT_ERROR if any(answer.error for answer in answers.values()) else 0
