# SPDX-License-Identifier: BSD-3-Clause
"""Runs a function over many arguments: here, in processes, or by Dask; results keep their order."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from nupa.model.errors import ModelError

A = TypeVar("A")
B = TypeVar("B")
BATCH = 16
#: Below this many, starting processes takes longer than the work.
FEW = 64
_WAVE = 4  # batches of a process between two results
CONNECT_S = 10


def solve_all(
    solve: Callable[[A], B], asked: Sequence[A], *, jobs: int = 0, scheduler: str = ""
) -> Iterator[B]:
    """Yields solve(each), in order, as soon as all before are there.

    *jobs* 0: as many processes as CPUs.  ModelError: no Dask, or no scheduler there.
    """
    if scheduler:
        yield from _by_cluster(solve, asked, scheduler)
        return
    count = jobs or len(os.sched_getaffinity(0))
    if count == 1 or len(asked) < FEW:
        yield from map(solve, asked)
    elif importlib.util.find_spec("dask"):
        yield from _by_dask(solve, asked, count)
    else:
        with ProcessPoolExecutor(count) as pool:
            yield from pool.map(solve, asked, chunksize=BATCH)


def _batches(asked: Sequence[A]) -> list[Sequence[A]]:
    return [asked[at : at + BATCH] for at in range(0, len(asked), BATCH)]


def _solve_batch(solve: Callable[[A], B], batch: Sequence[A]) -> list[B]:
    return [solve(each) for each in batch]


def _by_dask(solve: Callable[[A], B], asked: Sequence[A], jobs: int) -> Iterator[B]:
    """Runs batches by Dask's scheduler of processes, which has no daemon."""
    import dask

    batches = _batches(asked)
    with ProcessPoolExecutor(jobs) as pool:
        for at in range(0, len(batches), jobs * _WAVE):
            wave = [
                dask.delayed(_solve_batch)(solve, batch)
                for batch in batches[at : at + jobs * _WAVE]
            ]
            for results in dask.compute(*wave, scheduler="processes", pool=pool):
                yield from results


def _by_cluster(solve: Callable[[A], B], asked: Sequence[A], address: str) -> Iterator[B]:
    """Runs batches on the workers of a scheduler; each needs nupa of the same version."""
    try:
        from dask.distributed import Client
    except ImportError as error:
        raise ModelError(
            f"--scheduler needs Dask, which is not installed ({error}): `pip install nupa[sweep]`"
        ) from error
    try:
        client = Client(address, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"no Dask scheduler answers at {address} ({error}): start one with `dask scheduler`, "
            "and workers with `dask worker ADDRESS`"
        ) from error
    with client:
        futures = [client.submit(_solve_batch, solve, each, pure=False) for each in _batches(asked)]
        for future in futures:
            yield from future.result()
