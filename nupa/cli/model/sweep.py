# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model sweep`: all combinations of works, fabrics and ranks, into a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import count
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.model.common import QUIET_S

if TYPE_CHECKING:
    from nupa.model.study.sweep import SweepRow

_EPILOG = """\
FILE is TOML with lists, of which all combinations are predicted, the last list varying fastest:
  work = ["allreduce:1M..1G", "alltoall:64M"]
  on = ["ib-ndr", "roce-400", "rail(256,nvlink4,ib-ndr)"]
  ranks = [8, 64]                # 0: all endpoints (default)
  algorithm = ["", "ring"]       # "": the library chooses (default)
  engine = "auto"
  seed = 1
  figures = ["", "ib-ndr.hop=90ns"]     # other values of profiles' figures
An impossible combination has its reason in the column `error`.  A sweep that was killed goes on
where it was when it is started again with the same --out.  Rows are in the order of the lists.

Processes of this machine work, by Dask if it is installed (`pip install nupa[sweep]`).
--scheduler: the workers of a Dask cluster do; they need nupa, and files that the sweep names.

examples:
  nupa model sweep sweep.toml                                  CSV on stdout
  nupa model sweep sweep.toml --out x.parquet --jobs 4
  nupa model sweep sweep.toml --out x.csv --scheduler tcp://head:8786
"""


def add_parser(verbs: Subparsers) -> None:
    what = "predict all combinations of works, fabrics and ranks, into CSV or Parquet"
    parser = add_command(verbs, "sweep", what, _EPILOG, run)
    parser.add_argument("file", metavar="FILE", help="TOML with lists of works and fabrics")
    parser.add_argument("--out", default="", metavar="F", help="write F.csv or F.parquet (pyarrow)")
    parser.add_argument(
        "--scheduler", default="", metavar="ADDRESS", help="use this Dask scheduler's workers"
    )
    parser.add_argument(
        "--jobs", type=count, default=0, metavar="N", help="use N processes (default: one a CPU)"
    )


def run(args: argparse.Namespace) -> int:
    import sys
    import time

    from nupa.base.progress import Progress
    from nupa.model.study.sweep import sweep

    start = last = time.monotonic()

    with Progress(1, quiet_s=QUIET_S) as progress:
        progress.step(f"sweep {args.file}")

        def step(done: int, everything: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= 1 or done == everything:
                last = now
                progress.detail(f"{done} of {everything} configurations")

        rows = sweep(args.file, args.out, scheduler=args.scheduler, jobs=args.jobs, step=step)
    wrong = sum(bool(row.error) for row in rows)
    if args.out:
        seconds = time.monotonic() - start
        print(f"{args.out}: {len(rows)} configurations, {wrong} impossible, {seconds:.1f} s")
    else:
        _print(rows, sys.stdout)
    return 0


def _print(rows: list[SweepRow], out: object) -> None:
    import csv
    from typing import Any, cast

    writer = csv.writer(cast(Any, out), lineterminator="\n")
    writer.writerow(rows[0]._fields)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
