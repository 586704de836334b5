# SPDX-License-Identifier: BSD-3-Clause
"""One rank of a collective's measurement, a process of its own.

    python -m nupa.measure.collective_rank --rank R --name N --fabric F --host H --job JSON

Rank 0 prints the results, a JSON list.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nupa.base.errors import NupaError
from nupa.collectives import Communicator
from nupa.collectives.elements import numpy
from nupa.measure.collective import CollectiveJob, counts, from_json, row

if TYPE_CHECKING:
    from nupa.collectives.elements import Array

_DTYPES = {
    "f16": "f2",
    "bf16": "u2",
    "f32": "f4",
    "f64": "f8",
    "i32": "i4",
    "u32": "u4",
    "i64": "i8",
    "u64": "u8",
}
_WARM_UP = 3  # calls, at most
_CYCLE = 4  # values are below: sums of all ranks are exact in each type
_PR_SET_PDEATHSIG = 1


@dataclass
class CollectiveCase:
    """A call of one size: its arrays, what it should give, and how it is made."""

    given: Array
    out: Array
    expected: Array
    inside: Array  # of the in-place call: input and output
    own: slice  # where in `inside` the rank's input is
    result: slice  # and its output
    call: Callable[[Array, Array], Any]


def values(job: CollectiveJob, rank: int, count: int) -> Array:
    """Returns the input of a rank: small integers, which depend on rank and place."""
    np = numpy()
    small = (np.arange(count) + 3 * rank) % _CYCLE
    return as_type(small, job.type_)


def as_type(small: Array, type_: str) -> Array:
    """Converts integers that the type has exactly."""
    if type_ == "bf16":
        return (small.astype("f4").view("u4") >> 16).astype("u2")
    return small.astype(_DTYPES[type_])


def reduced(job: CollectiveJob, count: int) -> Array:
    """Returns the reduction of all ranks' values."""
    np = numpy()
    ufuncs = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    all_values = [(np.arange(count) + 3 * rank) % _CYCLE for rank in range(job.ranks)]
    return as_type(ufuncs[job.redop].reduce(all_values), job.type_)


def make_case(job: CollectiveJob, ranks: Communicator, size_bytes: int) -> CollectiveCase:
    """Returns the arrays and the call for one size."""
    np = numpy()
    given, got = counts(job, size_bytes)
    kind = _DTYPES[job.type_]
    options: dict[str, Any] = {"algorithm": job.algorithm, "type_": job.type_}
    mine = values(job, ranks.rank, given)
    whole = slice(0, got)
    part = slice(ranks.rank * min(given, got), (ranks.rank + 1) * min(given, got))
    if job.operation == "allreduce":
        return CollectiveCase(
            mine, np.zeros(got, kind), reduced(job, got), mine.copy(), whole, whole,
            lambda a, out: ranks.all_reduce(a, job.redop, out=out, **options),
        )  # fmt: skip
    if job.operation == "reducescatter":
        return CollectiveCase(
            mine, np.zeros(got, kind), reduced(job, given)[part], mine.copy(), slice(0, given),
            part, lambda a, out: ranks.reduce_scatter(a, job.redop, out=out, **options),
        )  # fmt: skip
    if job.operation == "allgather":
        everything = np.concatenate([values(job, rank, given) for rank in range(job.ranks)])
        return CollectiveCase(
            mine, np.zeros(got, kind), everything, np.zeros(got, kind), part, whole,
            lambda a, out: ranks.all_gather(a, out=out, **options),
        )  # fmt: skip

    def broadcast(a: Array, out: Array) -> None:
        if a is not out and ranks.rank == job.root:
            out[:] = a
        ranks.broadcast(out, job.root, **options)

    expected = values(job, job.root, given)
    return CollectiveCase(mine, np.zeros(got, kind), expected, mine.copy(), whole, whole, broadcast)


def mean_over_ranks(ranks: Communicator, seconds: float) -> float:
    total = ranks.all_reduce(numpy().array([seconds]), algorithm="tree")
    return float(total[0]) / ranks.size


def timed(ranks: Communicator, call: Callable[[], Any], iterations: int) -> float:
    """Returns the mean time of a call, in microseconds, over calls and ranks."""
    for _ in range(min(iterations, _WARM_UP)):
        call()
    ranks.barrier(algorithm="tree")
    start_s = time.perf_counter()
    for _ in range(iterations):
        call()
    return mean_over_ranks(ranks, time.perf_counter() - start_s) / iterations * 1e6


def wrong(ranks: Communicator, found: Array, expected: Array) -> int:
    """Counts elements of all ranks that are not as expected."""
    mine = numpy().array([int((found != expected).sum())], "u8")
    return int(ranks.all_reduce(mine, algorithm="tree")[0])


def run_size(
    job: CollectiveJob, ranks: Communicator, size_bytes: int, iterations: int
) -> dict[str, Any]:
    """Measures one size: out of place, then in place."""
    if job.operation == "barrier":
        algorithm = job.algorithm or ranks.choose(0)
        time_us = timed(ranks, lambda: ranks.barrier(algorithm=algorithm), iterations)
        place = {"time_us": time_us, "wrong": 0}
        found = {"algorithm": algorithm, "out_of_place": place, "in_place": place}
        return row(job, 0, iterations, found)
    case = make_case(job, ranks, size_bytes)
    time_us = timed(ranks, lambda: case.call(case.given, case.out), iterations)
    bad = wrong(ranks, case.out, case.expected)
    original = case.given.copy()

    def in_place() -> None:
        own, result = case.inside[case.own], case.inside[case.result]
        case.call(result if job.operation in ("allreduce", "broadcast") else own, result)

    # The sums of sums that this makes are not checked, those of one call afterwards are.
    in_place_us = timed(ranks, in_place, iterations)
    case.inside[case.own] = original
    in_place()
    in_place_bad = wrong(ranks, case.inside[case.result], case.expected)
    moved = max(case.given.nbytes, case.out.nbytes)
    return row(
        job,
        size_bytes,
        iterations,
        {
            "algorithm": job.algorithm or ranks.choose(moved),
            "out_of_place": {"time_us": time_us, "wrong": bad},
            "in_place": {"time_us": in_place_us, "wrong": in_place_bad},
        },
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="nupa.measure.collective_rank", description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--fabric", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--job", type=from_json, required=True)
    args = parser.parse_args(argv)
    # Without the parent there is no reader of the results.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    job: CollectiveJob = args.job
    try:
        with Communicator(
            args.name,
            args.rank,
            job.ranks,
            fabric=args.fabric,
            host=args.host,
            over=job.over,
            deadline_s=job.deadline_s,
        ) as ranks:
            results = [run_size(job, ranks, size, count) for size, count in job.runs]
        if args.rank == 0:
            print(json.dumps(results))
    except (NupaError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
