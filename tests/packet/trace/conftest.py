# SPDX-License-Identifier: BSD-3-Clause
"""Fixture: the index of a capture file."""

from __future__ import annotations

from pathlib import Path

import pytest

from nupa.diagram.find.index import Index, read_index
from tests.packet.trace.scenes import Reading, Scene


@pytest.fixture
def read(tmp_path: Path) -> Reading:
    """Writes a scene to a file and reads its index."""

    def made(source: Scene | bytes) -> Index:
        file = tmp_path / "x.pcapng"
        file.write_bytes(source if isinstance(source, bytes) else source.bytes())
        return read_index(file)

    return made
