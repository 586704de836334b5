# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures: a QP with an injector at its partner's port; the index of a capture file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from nupa.diagram.find.index import Index, read_index
from tests.packet import trace_scenes
from tests.packet.scene import Scene

# As in tests/unit: a busy machine is slow, which is not a failure.
hypothesis.settings.register_profile(
    "nupa",
    hypothesis.settings(),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("nupa")


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


@pytest.fixture
def read(tmp_path: Path) -> trace_scenes.Reading:
    """Writes a scene to a file and reads its index."""

    def made(source: trace_scenes.Scene | bytes) -> Index:
        file = tmp_path / "x.pcapng"
        file.write_bytes(source if isinstance(source, bytes) else source.bytes())
        return read_index(file)

    return made
