# SPDX-License-Identifier: BSD-3-Clause
"""Links of a soak: which of them the director may judge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from .crew import Worker
from .links import Link, LinkEnd


def link_of(*ends: tuple[str, bool]) -> Link:
    """Returns a link of two workers: how each was ended, and whether its process is gone."""
    first, second = (
        LinkEnd(i, cast("Worker", SimpleNamespace(ended_by=ended_by)), gone=gone)
        for i, (ended_by, gone) in enumerate(ends)
    )
    return Link(1, "RC", (first, second), made_ns=0)


@pytest.mark.parametrize(
    ("ends", "waits"),
    [
        ((("", False), ("", False)), False),
        ((("kill", True), ("", False)), False),  # the one that lives has to notice
        ((("kill", False), ("", False)), True),
        ((("kill", True), ("kill", False)), True),
        ((("kill", True), ("exit", False)), True),
        ((("", False), ("finish", False)), True),
    ],
)
def test_a_link_waits_while_a_process_of_it_ends(
    ends: tuple[tuple[str, bool], tuple[str, bool]], waits: bool
) -> None:
    assert link_of(*ends).being_ended is waits


@pytest.mark.parametrize(
    ("downs", "told"),
    [((False, False), False), ((True, False), False), ((False, True), True), ((True, True), True)],
)
def test_a_link_is_told_when_those_that_live_are(downs: tuple[bool, bool], told: bool) -> None:
    link = link_of(("kill", True), ("", False))
    for end, down in zip(link.ends, downs, strict=True):
        end.down = down
    assert link.told is told
