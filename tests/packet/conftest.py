# SPDX-License-Identifier: BSD-3-Clause
"""A QP that packets are injected at, its partner, and the injector at the partner's port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

from tests.packet.scene import Scene

# As tests/unit has it: a machine that is busy takes its time, and that is no failure.
hypothesis.settings.register_profile(
    "nupa",
    hypothesis.settings(),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("nupa")


@pytest.fixture
def make_scene() -> Iterator[Callable[..., Scene]]:
    """Makes scenes: their options are Scene's."""
    scenes: list[Scene] = []

    def make(*args: Any, **options: Any) -> Scene:
        scenes.append(Scene(*args, **options))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


@pytest.fixture
def scene(make_scene: Callable[..., Scene]) -> Scene:
    """RC, MTU 256."""
    return make_scene()
