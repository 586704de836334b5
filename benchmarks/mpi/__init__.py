# SPDX-License-Identifier: BSD-3-Clause
"""MPI_Allreduce of Open MPI over the verbs of NUPA, beside Open MPI's own shared memory."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.case import Bench, Case
from nupa.programs.pair import ProgramError, nupa_run, run

_RANKS = 4
_DEADLINE_S = 60.0

#: Names, bytes, rounds.
_SIZES = (
    ("8 B", 8, 200),
    ("1 KiB", 1 << 10, 200),
    ("64 KiB", 1 << 16, 100),
    ("1 MiB", 1 << 20, 40),
)

#: Settings of Open MPI and its UCX: all between the ranks goes by the first layer named.
_OVER_VERBS = (
    *("--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "btl", "^openib"),
    *("-x", "UCX_TLS=rc_v,self", "-x", "UCX_NET_DEVICES=nupa_rdma0:1"),
)
_OVER_SHARED_MEMORY = ("--mca", "pml", "ob1", "--mca", "btl", "vader,self")


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nupa-bench-mpi-")


@functools.cache
def _program() -> str:
    """Compiles allreduce.c.  ProgramError: Open MPI is missing; the message says what to do."""
    if shutil.which("mpicc") is None or shutil.which("mpirun") is None:
        raise ProgramError("Open MPI is missing: apt install openmpi-bin libopenmpi-dev")
    program = Path(_folder().name, "allreduce")
    source = Path(__file__).with_name("allreduce.c")
    run(["mpicc", "-O2", "-o", str(program), str(source)]).check()
    return str(program)


def _us(size: int, rounds: int, *, verbs: bool) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        argv = ["mpirun", "-n", str(_RANKS), "--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            argv.append("--allow-run-as-root")
        argv += _OVER_VERBS if verbs else _OVER_SHARED_MEMORY
        argv += [_program(), bench.iterations(rounds), str(size)]
        if verbs:
            argv = nupa_run(argv, fabric=bench.fabric, host=bench.hosts[0])
        cpus = ",".join(str(cpu) for cpu in bench.cpus)
        done = run(["taskset", "-c", cpus, *argv], deadline_s=_DEADLINE_S).check()
        return parse(done.stdout)

    return measure


def parse(text: str) -> float:
    """Returns the microseconds of the only line that is a size and a time.

    >>> parse("8 1.250")
    1.25
    """
    lines = [line.split() for line in text.splitlines()]
    found = [float(line[1]) for line in lines if len(line) == 2 and line[0].isdigit()]
    if len(found) != 1:
        raise ProgramError(f"allreduce printed no time: {text!r}")
    return found[0]


CASES = tuple(
    Case(
        f"MPI_Allreduce {name}, {_RANKS} ranks",
        "µs",
        None,
        _us(size, rounds, verbs=True),
        "over its own shared memory",
        _us(size, rounds, verbs=False),
    )
    for name, size, rounds in _SIZES
)
