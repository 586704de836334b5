# SPDX-License-Identifier: BSD-3-Clause
"""The stages of tests/programs, over a wire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.programs.stage import Stage
from tests.wire.lab import Wired


@pytest.fixture
def stage(wire: Wired, quick_clock: str) -> Stage:
    return replace(wire, preload=quick_clock)


@pytest.fixture
def fabric(wire: Wired) -> Stage:
    """Both fabrics are up already."""
    return wire


@pytest.fixture
def moved(stage: Stage) -> Stage:
    """A wire has one way to move data."""
    return stage


@pytest.fixture(params=["ourselves", "nobody"])
def everywhere(request: pytest.FixtureRequest, quick_clock: str) -> Stage:
    name = "wire" if request.param == "ourselves" else "wire_of_nobody"
    found: Wired = request.getfixturevalue(name)
    return replace(found, preload=quick_clock)
