# SPDX-License-Identifier: BSD-3-Clause
"""`make bench`: measures NUPA beside the limits of the machine.

Both sides of each line are measured in one run, by turns, pinned to the same two CPUs.  Each number
is the median of the rounds.  A missed target is a line of the report, not an error, because
machines differ.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.case import Bench, Case
from benchmarks.cases import CASES
from benchmarks.links import Links
from benchmarks.machines import Machines
from nupa.base.progress import Progress
from nupa.measure.report import HEADINGS, Line
from nupa.measure.text import UNICODE, ReportGlyphs, glyphs_for, table
from nupa.programs.cpus import busy_cpus, load_note, pick_two
from nupa.programs.fabric import temporary_fabric
from nupa.programs.pair import ProgramError
from nupa.programs.perftest import PerftestError

_ROUNDS = 5


def measure(case: Case, bench: Bench, rounds: int) -> Line:
    """Returns the medians of both sides, which take turns in each round."""
    target = case.target
    names = (case.what, case.unit, target.text if target else "", case.reference_name)
    values: list[float] = []
    references: list[float] = []
    try:
        for _ in range(1 if case.once else rounds):
            if case.reference is not None:
                references.append(case.reference(bench))
            values.append(case.measure(bench))
    except (ProgramError, PerftestError) as error:
        return Line(*names, error=str(error))
    value = statistics.median(values)
    reference = statistics.median(references) if references else None
    met = None if target is None else target.met(value, reference or 0.0)
    ratio = value / reference if reference else None
    return Line(*names, value, reference, ratio, met)


#: Lines of a Markdown page between which `--into` writes the table.
MARKS = ("<!-- measured: begin -->", "<!-- measured: end -->")


def render(rows: Sequence[Line], glyphs: ReportGlyphs) -> str:
    """Returns the table, and below it the message of each failed line."""
    errors = [f"{row.what}: {row.error}" for row in rows if row.error]
    return "\n\n".join([table(HEADINGS, [row.cells(glyphs) for row in rows]), *errors])


def write_into(page: Path, rows: Sequence[Line], where: str) -> None:
    """Replaces the table between MARKS in *page*.  ValueError: *page* does not have both."""
    text = page.read_text()
    before, begin, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise ValueError(f"{page} has no lines {MARKS[0]} and {MARKS[1]} to write between")
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(row.cells(UNICODE) for row in rows)]
    written = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    page.write_text(f"{before}{begin}\n{where}\n\n{written}\n{end}{after}")


def machine() -> dict[str, str]:
    """Describes the machine, on which the numbers depend."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"cpu": model, "kernel": platform.release(), "python": platform.python_version()}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__.partition("\n")[0] if __doc__ else None
    )
    parser.add_argument("--quick", action="store_true", help="one round, few iterations")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    parser.add_argument(
        "--into", type=Path, metavar="PAGE", help="write the table into a Markdown page, too"
    )
    parser.add_argument("--rounds", type=int, default=None, help=f"default {_ROUNDS}")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in their name")
    args = parser.parse_args(argv)
    if args.rounds is None:
        args.rounds = 1 if args.quick else _ROUNDS
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: at least 1 is needed")
    if not any(args.only in case.what for case in CASES):
        parser.error(f"--only '{args.only}': no case has that in its name")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    cpus = pick_two()
    if cpus is None:
        print("two CPUs are needed to measure, this process may use one", file=sys.stderr)
        return 2
    load = load_note(busy_cpus())
    cases = [case for case in CASES if args.only in case.what]
    # As by Ctrl-C, all that was made is removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with (
        temporary_fabric("bench") as fabric,
        Links() as links,
        Machines() as machines,
        Progress(len(cases)) as progress,
    ):
        bench = Bench(fabric.name, cpus, quick=args.quick, links=links, machines=machines)
        rows = []
        for case in cases:
            progress.step(case.what)
            rows.append(measure(case, bench, args.rounds))
    where = machine()
    heading = (
        f"{where['cpu']}, Linux {where['kernel']}, CPUs {cpus[0]} and {cpus[1]}, "
        f"median of {args.rounds}"
    )
    print(f"{heading}\n")
    print(render(rows, glyphs_for(sys.stdout.encoding)))
    if load:
        print(f"\nnote: {load}")
    if args.into is not None:
        note = f"; {load}" if load else ""
        write_into(args.into, rows, f"{datetime.date.today()}: {heading}{note}.")
    if args.json is not None:
        report = {
            "machine": where,
            "rounds": args.rounds,
            "note": load,
            "rows": [asdict(row) for row in rows],
        }
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0
