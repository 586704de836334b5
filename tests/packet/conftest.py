# SPDX-License-Identifier: BSD-3-Clause
"""A QP that packets are injected at, its partner, and the injector at the partner's port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.packet.scene import Scene


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
