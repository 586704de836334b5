# SPDX-License-Identifier: BSD-3-Clause
"""Arguments and files that several commands of `nupa model` share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nupa.model.answer.answer import Answer

#: Progress is shown of what takes longer.
QUIET_S = 2.0
ENGINES = ("auto", "stages", "flows", "packets")
WORK_HELP = """\
WORK is a word, its size, and options:
  write:8, read:4K, send:64, atomic:8       one message, as perftest's latency tests time it
  load:64, store:64                         one access to memory of another host
  write-bw:64K,depth=128                    a stream, as perftest's bandwidth tests time it
  write-bw:64K,qps=4,bidirectional=true     perftest's -q 4 -b, of write, read and send
  allreduce:1G, alltoall:64M, barrier, ...  a collective, as nccl-tests times it
  allreduce:1M..1G                          each power of two from 1 MiB to 1 GiB
  storage:4K,rw=randread,iodepth=32,clients=4,servers=4,transport=tcp    in fio's words
  @step.toml                                a file: training, inference, dispatch, storage
"""
ON_HELP = """\
A fabric is a profile (`nupa model profiles`), a preset (rack24), a generator with arguments
(`fat_tree(1024,roce-400,taper=0.5)`, `rail(256,nvlink4,ib-ndr)`, `hpn_upn(100000)`), or a file.
"""


def add_question(parser: argparse.ArgumentParser) -> None:
    """Adds what every prediction takes, but fabrics."""
    parser.add_argument("--work", required=True, metavar="W", help="predict this work; see below")
    parser.add_argument(
        "--ranks",
        type=count,
        default=0,
        metavar="R",
        help="let R endpoints take part (default: all; a profile named alone: 2)",
    )
    parser.add_argument(
        "--engine", choices=ENGINES, default="auto", help="use this engine (default: auto)"
    )
    parser.add_argument(
        "--algorithm", default="", metavar="A", help="override the library's choice, as ring, tree"
    )
    parser.add_argument(
        "--library", default="", metavar="L", help="take that library: nccl (default) or mpich"
    )
    parser.add_argument(
        "--seed", type=_seed, default=1, metavar="N", help="draw random numbers from N (default: 1)"
    )


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 2^64 - 1")
    return int(text)


def add_drawings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plot", metavar="F", help="draw into F.svg, .pdf or .png (matplotlib)")
    parser.add_argument(
        "--timeline",
        metavar="F",
        help="write F.json for ui.perfetto.dev: stages, and operations that the engine ran",
    )


def write_drawings(args: argparse.Namespace, answers: Sequence[Answer]) -> None:
    """Writes what --plot and --timeline ask for.  ModelError: it cannot be written."""
    if args.plot:
        from nupa.model.answer.plot import plot

        plot(answers, args.plot)
    if args.timeline:
        import json
        from pathlib import Path

        from nupa.model.answer.perfetto import trace
        from nupa.model.errors import ModelError

        try:
            Path(args.timeline).write_text(json.dumps(trace(answers)), encoding="utf-8")
        except OSError as error:
            raise ModelError(f"--timeline {args.timeline}: {error.strerror}") from error
