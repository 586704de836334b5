# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures: a QP with an injector at its partner's port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.packet.inject.scene import Scene


@pytest.fixture
def make_scene() -> Iterator[Callable[..., Scene]]:
    """Returns a function that makes scenes, with the options of Scene."""
    scenes: list[Scene] = []

    def make(*args: Any, **options: Any) -> Scene:
        scenes.append(Scene(*args, **options))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


@pytest.fixture
def scene(make_scene: Callable[..., Scene]) -> Scene:
    """A scene of RC with an MTU of 256."""
    return make_scene()
