# SPDX-License-Identifier: BSD-3-Clause
"""The calibration files that are judged.  A reader and a row of this table add one."""

from __future__ import annotations

from nupa.model.validate import perftest
from nupa.model.validate.case import File, everything

PERFTEST_LIMIT = 0.05

FILES: tuple[File, ...] = (
    File(
        "perftest-ib-hdr-write-lat",
        perftest.latency("ib-hdr"),
        (everything(PERFTEST_LIMIT),),
        fitted=True,
    ),
)
