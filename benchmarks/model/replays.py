# SPDX-License-Identifier: BSD-3-Clause
"""`python -m benchmarks.model.replays`: programs recorded here, and replayed on `here`.

Calibrates each mover, then runs each program by turns unrecorded and recorded.  Prints the median
of latencies, the least of means, and the mean error of each group beside the bar.  It needs a quiet
machine.  The profiles of the user are neither read nor written.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.model.recorded import (
    Place,
    RecordedProgram,
    mean_error,
    measured_ns,
    predicted_ns,
    programs,
    to_json,
)
from nupa.cli.common.text import table
from nupa.core.mover import Mover
from nupa.measure.here import measure, write
from nupa.measure.perf import PerfError
from nupa.model.errors import ModelError
from nupa.model.profile.profile import load, own_folder
from nupa.programs.cpus import busy_cpus, load_note, pick_two
from nupa.programs.fabric import temporary_fabric
from nupa.programs.pair import ProgramError
from nupa.programs.perftest import PerftestError

BAR = 0.15
#: Between private memory of two processes; pool needs programs that ask for its memory.
MOVERS = (Mover.SHARED, Mover.CMA, Mover.RELAY)
_Row = tuple[RecordedProgram, str, float, float]


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    cpus = pick_two()
    if cpus is None:
        print("two CPUs are needed to measure, this process may use one", file=sys.stderr)
        return 2
    load_said = load_note(busy_cpus())
    with (
        tempfile.TemporaryDirectory(prefix="nupa-replays-") as folder,
        temporary_fabric("replays") as fabric,
    ):
        os.environ["XDG_CONFIG_HOME"] = str(args.profiles or folder)
        for mover in MOVERS:  # a recorded send may have moved by another one
            if (own_folder() / f"here-{mover}.toml").exists():
                continue
            try:
                write(measure(fabric, str(mover)), own_folder())
            except PerfError as error:
                print(f"{mover} was left out: {error}", file=sys.stderr)
        load.cache_clear()
        rows = []
        for name in args.movers.split(","):
            place = Place(fabric.name, cpus, str(Mover.parse(name)))
            for program in programs(folder):
                if args.only in program.name or args.only == program.group:
                    rows += _row(program, place, args.rounds)
    print(_text(rows))
    if load_said:
        print(f"note: {load_said}")
    if args.json:
        args.json.write_text(to_json(rows) + "\n", encoding="utf-8")
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.model.replays", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--movers", default=",".join(map(str, MOVERS)), metavar="A,B")
    parser.add_argument("--only", default="", metavar="TEXT", help="a group, or part of a name")
    parser.add_argument(
        "--profiles", type=Path, metavar="FOLDER", help="calibrated before, or to be kept there"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    return parser.parse_args(argv)


def _row(program: RecordedProgram, place: Place, rounds: int) -> list[_Row]:
    """Measures one program; a failure is said, and is no row."""
    measured, predicted = [], []
    try:
        for _ in range(rounds):
            measured.append(measured_ns(program, place))
            predicted.append(predicted_ns(program, place))
    except (ProgramError, PerftestError, ModelError) as error:
        print(f"{program.name}, {place.mover}: {error}", file=sys.stderr)
        return []
    # A mean has the time of other programs of the machine in it: the least is the program's own.
    chosen = median if program.typical else min
    row = (program, place.mover or "", chosen(measured), chosen(predicted))
    print(_cells(row), file=sys.stderr, flush=True)
    return [row]


def _cells(row: _Row) -> tuple[str, ...]:
    program, mover, measured, predicted = row
    error = predicted / measured - 1
    return (
        program.group,
        program.name,
        mover,
        f"{measured / 1e3:.4g}",
        f"{predicted / 1e3:.4g}",
        f"{error:+.1%}",
    )


def _text(rows: Sequence[_Row]) -> str:
    head = ("GROUP", "PROGRAM", "MOVER", "MEASURED us", "PREDICTED us", "ERROR")
    lines = [table(head, [_cells(row) for row in rows]), ""]
    for group in dict.fromkeys(row[0].group for row in rows):
        pairs = [(measured, predicted) for p, _, measured, predicted in rows if p.group == group]
        found = mean_error(pairs)
        verdict = "met" if found <= BAR else "NOT MET"
        lines.append(f"{group}: mean error {found:.1%} of {len(pairs)}; bar {BAR:.0%}: {verdict}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
