# SPDX-License-Identifier: BSD-3-Clause
"""`nupa demo`: runs real RDMA programs between two hosts, beside TCP."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_json, add_mover
from nupa.cli.common.command import EXIT_USAGE, Subparsers, add_command, exit_by_signals, fail
from nupa.core.mover import BETWEEN_PROCESSES

if TYPE_CHECKING:
    from nupa.measure.storage_report import StorageReport

_EPILOG = """\
Makes a fabric of two hosts and does on it:
  files  sends a file from one host to the other by WRITE, READ and SEND and compares SHA-256
  sizes  runs perftest's programs unmodified (where they are not installed, `nupa perf`), measures
         TCP on loopback, and shows both by message size
  fio    runs one fio job over RDMA and over TCP on nupa_net0, and shows both by block size;
         alone it takes more sizes and depths
The last line predicts one of the programs for three real fabrics, as `nupa model predict` does.
Takes a minute.  Exit code: 0 if all of it worked, else 1.

`nupa demo storage` asks the same of programs that store data, over RDMA and over TCP on nupa_net0:
  Ceph 16  a monitor and an OSD in memory; rados bench writes objects, reads and compares them
  tgt      a disk, read by libiscsi's iscsi-perf over iSER and over iSCSI
Debian's packages of them are downloaded once (115 MB), beside those of `nupa vm`.

examples:
  nupa demo
  nupa demo --only fio --plot fio.png
  nupa demo storage
  nupa demo storage --quick --json | jq '.reports[].results'
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "demo", "run real RDMA programs between two hosts, beside TCP", _EPILOG, run
    )
    parser.add_argument(
        "what", nargs="?", choices=["storage"], help="measure Ceph and iSCSI instead, see below"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the charts there, too: .png, .svg, .pdf"
    )
    add_json(parser)
    parser.add_argument("--quick", action="store_true", help="run fewer programs, in 15 seconds")
    parser.add_argument(
        "--only", choices=["files", "sizes", "fio"], help="run only this part, see below"
    )
    add_mover(parser, BETWEEN_PROCESSES, "force how bulk data moves (default: the best)")


def run(args: argparse.Namespace) -> int:
    """Returns 0: all worked; 1: a step failed or data was damaged; 2: the picture cannot be
    drawn."""
    # Imported here, because `nupa run` must not wait for them.
    import json
    import shutil
    import sys
    import tempfile

    from nupa.base.progress import Progress
    from nupa.measure import plot, results, suite
    from nupa.measure.text import glyphs_for
    from nupa.programs.cpus import busy_cpus, load_note, pick_two
    from nupa.programs.fabric import movers, temporary_fabric

    exit_by_signals()
    if args.what == "storage":
        return _storage(args)
    try:
        if args.plot is not None:
            plot.check(args.plot)
        load = load_note(busy_cpus())
        plan = suite.QUICK if args.quick else suite.FULL
        if args.only is not None:
            plan = plan.only(args.only)
        with (
            tempfile.TemporaryDirectory(prefix="nupa-demo-") as directory,
            temporary_fabric("demo") as fabric,
            Progress(plan.steps) as progress,
        ):
            found = suite.Suite(
                plan,
                progress,
                fabric=fabric.name,
                mover=args.mover,
                cpus=pick_two(),
                directory=Path(directory),
                movers=lambda: movers(fabric),
            ).run()
        if load:
            found.notes.append(load)
        if args.json:
            print(json.dumps(found.to_json(), indent=2))
        else:
            width = min(shutil.get_terminal_size((80, 24)).columns, 100)
            glyphs = glyphs_for(sys.stdout.encoding)
            print(results.render(found, width=width, glyphs=glyphs))
        if args.plot is not None:
            plot.draw(found, args.plot)
    except plot.PlotError as error:
        return fail(str(error), EXIT_USAGE)
    return 0 if found.ok else 1


def _storage(args: argparse.Namespace) -> int:
    """Returns 0: all was measured; 1: a step failed; 2: an option does not apply."""
    from nupa.cli.common.text import print_json
    from nupa.measure.storage_report import render
    from nupa.programs.cpus import busy_cpus, load_note

    for option in ("plot", "only", "mover"):
        if getattr(args, option) is not None:
            return fail(f"--{option} does not apply to `nupa demo storage`", EXIT_USAGE)
    load = load_note(busy_cpus())
    reports = _measure_storage(quick=args.quick)
    if load:
        reports[-1].notes.append(load)
    if args.json:
        print_json({"reports": [report.to_json() for report in reports]})
    else:
        print("\n\n".join(render(report) for report in reports))
    return 0 if all(report.ok for report in reports) else 1


def _measure_storage(*, quick: bool) -> list[StorageReport]:
    """Fetches the programs, makes a fabric with interfaces, and runs the plan on it."""
    import sys
    import tempfile

    from nupa.base.progress import Progress
    from nupa.measure import user_storage
    from nupa.measure.versus import network
    from nupa.programs.fabric import temporary_fabric
    from nupa.programs.unpacked import Unpacked
    from nupa.vm.boot.unpacked import unpacked

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    root = unpacked("storage-bookworm.1", user_storage.PACKAGES, say, ["bookworm"])
    plan = user_storage.QUICK if quick else user_storage.FULL
    with (
        tempfile.TemporaryDirectory(prefix="nupa-demo-") as directory,
        temporary_fabric("demo-storage", 2) as fabric,
        network(fabric.name),
        Progress(plan.steps, beats=True) as progress,
    ):
        return user_storage.UserStorage(
            plan, progress, fabric, Unpacked(root), Path(directory)
        ).run()
