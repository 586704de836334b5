# SPDX-License-Identifier: BSD-3-Clause
"""The calibration files that are judged.  A reader and a row of this table add one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nupa.model.errors import ModelError
from nupa.model.validate import collectives, htsim, memchannel, perftest, points
from nupa.model.validate.case import (
    AnyCase,
    CalibrationFile,
    Line,
    PacketCase,
    Threshold,
    each_by_packets,
    everything,
)

PERFTEST = everything(0.05)
CXL_LATENCY = Threshold("latency", 0.05, lambda case: not isinstance(case, PacketCase))


def _cxl(lines: Sequence[Line]) -> Iterator[AnyCase]:
    """Reads latencies of pairs, and contention for one memory."""
    yield from points.cxl(lines)
    yield from memchannel.contention(lines)


FILES: tuple[CalibrationFile, ...] = (
    CalibrationFile(
        "perftest-ib-hdr-write-lat", perftest.latency("ib-hdr"), (PERFTEST,), fitted=True
    ),
    CalibrationFile(
        "perftest-ib-edr-send-bw", perftest.bandwidth("ib-edr"), (PERFTEST,), fitted=True
    ),
    CalibrationFile(
        "perftest-ib-cx3-bandwidth", perftest.bandwidth("ib-cx3"), (PERFTEST,), fitted=True
    ),
    CalibrationFile(
        "perftest-roce-10g-send-bw", perftest.bandwidth("roce-10g"), (PERFTEST,), fitted=True
    ),
    CalibrationFile(
        "osu-slingshot11-clariden",
        perftest.osu_latency("slingshot-11", "latency_2ranks_2nodes"),
        (PERFTEST,),
        fitted=True,
        left_out="alltoall_8ranks_2nodes: 1 MiB takes 1.82 ms; by mpich's rules 0.37 ms with one "
        "adapter a rank, 1.28 ms with one a node; no step at 256 B, where the rules have one; and "
        "the head does not say how ranks are bound, nor how they share memory",
    ),
    CalibrationFile(
        "cxl-points",
        _cxl,
        (CXL_LATENCY, each_by_packets(0.10)),
        fitted=True,
        left_out="contention (second case): its load is not in the file; the DMA channel's claim "
        "is no operation",
    ),
    CalibrationFile(
        "p2p-gpu-bandwidth",
        points.copies,
        (everything(0.05),),
        fitted=True,
    ),
    CalibrationFile(
        "uet-htsim-fct-receiver",
        htsim.experiments,
        (each_by_packets(0.10),),
        left_out="Small permutation; single path.: chance decides which flows share a link, and a "
        "test shows htsim's time to be the most frequent",
    ),
    *collectives.FILES,
)


def find(name: str) -> CalibrationFile:
    """Returns a file of the table.  ModelError: it is not there."""
    for file in FILES:
        if file.name == name.removesuffix(".csv"):
            return file
    known = ", ".join(file.name for file in FILES)
    raise ModelError(f"no calibration file {name!r} is judged: there are {known}")
