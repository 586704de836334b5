# SPDX-License-Identifier: BSD-3-Clause
"""Readers of perftest's and the OSU benchmarks' tables of one pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nupa.model.validate.case import Case, Line, Reader, pair
from nupa.model.work.perftest import TX_DEPTH, Perftest

_MESSAGES = 1000  # of a bandwidth test: the start and the end of the stream do not count


def latency(profile: str, switches: int = 1) -> Reader:
    """Returns a reader of `ib_*_lat`: the typical time."""

    def read(lines: Sequence[Line]) -> Iterator[Case]:
        network = pair(profile, switches)
        for line in lines:
            work = Perftest(line["operation"], int(line["bytes"]))
            yield Case(work.name, work, network, float(line["typical_us"]) * 1e3)

    return read


def bandwidth(profile: str, switches: int = 1) -> Reader:
    """Returns a reader of `ib_*_bw`: the message rate, which has more digits than the bandwidth."""

    def read(lines: Sequence[Line]) -> Iterator[Case]:
        network = pair(profile, switches)
        for line in lines:
            size = int(line["bytes"])
            work = Perftest(line["operation"], size, in_flight=TX_DEPTH, messages=_MESSAGES)
            yield Case(work.name, work, network, _MESSAGES / float(line["Mmsg_s"]) * 1e3)

    return read


def osu_latency(profile: str, test: str, switches: int = 1) -> Reader:
    """Returns a reader of `osu_latency`: the average time of the lines of *test*."""

    def read(lines: Sequence[Line]) -> Iterator[Case]:
        network = pair(profile, switches)
        for line in lines:
            if line["test"] == test:
                work = Perftest("send", int(line["bytes"]))
                yield Case(work.name, work, network, float(line["avg_us"]) * 1e3)

    return read
