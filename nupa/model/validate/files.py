# SPDX-License-Identifier: BSD-3-Clause
"""The calibration files that are judged.  A reader and a row of this table add one."""

from __future__ import annotations

from nupa.model.errors import ModelError
from nupa.model.validate import collectives, perftest, points
from nupa.model.validate.case import CalibrationFile, everything

PERFTEST = everything(0.05)

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
        points.cxl,
        (PERFTEST,),
        fitted=True,
        left_out="contention: the packet engine's tests; the DMA channel's claim is no operation",
    ),
    CalibrationFile(
        "p2p-gpu-bandwidth",
        points.copies,
        (everything(0.05),),
        fitted=True,
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
