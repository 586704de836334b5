# SPDX-License-Identifier: BSD-3-Clause
"""Ranks as threads of one process, on a fabric of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from nupa.collectives import Communicator
from nupa.fabric import Fabric

NAME = "ranks of a test"


def run_ranks(
    size: int,
    work: Callable[[Communicator], Any],
    *,
    fabric: Fabric | None = None,
    hosts: list[int] | None = None,
    deadline_s: float = 30.0,
    **options: Any,
) -> list[Any]:
    """Runs *work* in a thread for each rank; returns what each returned or raised."""
    if fabric is None:
        with Fabric(hosts=max(size, 1)) as own:
            return run_ranks(size, work, fabric=own, hosts=hosts, deadline_s=deadline_s, **options)
    shared: Fabric = fabric
    found: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            host = rank % len(shared.hosts) if hosts is None else hosts[rank]
            with Communicator(
                NAME, rank, size, fabric=shared, host=host, deadline_s=deadline_s, **options
            ) as ranks:
                found[rank] = work(ranks)
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def check_all(found: list[Any]) -> None:
    """Raises the first error of a rank."""
    for each in found:
        if isinstance(each, BaseException):
            raise each
