# SPDX-License-Identifier: BSD-3-Clause
"""Readers of perftest's latency and bandwidth tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nupa.model.validate.case import MIB, Case, Line, pair
from nupa.model.work.perftest import TX_DEPTH, Perftest

_MESSAGES = 1000  # of a bandwidth test: the start and the end of the stream do not count

Reader = Callable[[Sequence[Line]], Iterator[Case]]


def latency(profile: str, switches: int = 1) -> Reader:
    """Returns a reader of `ib_*_lat`: the typical time."""

    def read(lines: Sequence[Line]) -> Iterator[Case]:
        network = pair(profile, switches)
        for line in lines:
            work = Perftest(line["operation"], int(line["bytes"]))
            yield Case(work.name, work, network, float(line["typical_us"]) * 1e3)

    return read


def bandwidth(profile: str, column: str, switches: int = 1) -> Reader:
    """Returns a reader of `ib_*_bw`: the average rate, in a *column* of MiB/s or Gb/s.

    perftest rounds both columns; the message rate has more digits, and is taken where it is there.
    """
    unit = MIB if column.endswith("MiBps") else 1.25e8

    def read(lines: Sequence[Line]) -> Iterator[Case]:
        network = pair(profile, switches)
        for line in lines:
            size = int(line["bytes"])
            work = Perftest(line["operation"], size, in_flight=TX_DEPTH, messages=_MESSAGES)
            bytes_per_s = float(line[column]) * unit
            yield Case(work.name, work, network, size * _MESSAGES / bytes_per_s * 1e9)

    return read
