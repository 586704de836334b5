# SPDX-License-Identifier: BSD-3-Clause
"""Registered memory under programs that know nothing of promotion: it is as it was without."""

from __future__ import annotations

from pathlib import Path

import pytest

from .lab import Lab

SOURCES = Path(__file__).with_name("c")


@pytest.mark.parametrize("promote", ["1", "0"])
def test_what_allocators_do_with_registered_memory_works_as_before(
    fabric: Lab, promote: str
) -> None:
    program = fabric.compile(SOURCES / "advises.c", "-libverbs", "-pthread")
    said = fabric.must(fabric.on(None, program), env={"NUPA_PROMOTE": promote}).splitlines()
    assert said == [
        "MADV_DONTNEED of registered pages gives zeros: yes",
        "MADV_DONTNEED leaves the others: yes",
        "and what is stored after MADV_DONTNEED stays: yes",
        "calloc of what was registered and freed gives zeros: yes",
    ]
