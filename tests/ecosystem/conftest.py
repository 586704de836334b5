# SPDX-License-Identifier: BSD-3-Clause
"""The lab: a folder for fabrics in which nothing may be left."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    folder = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
    yield Lab(folder, tmp_path)
    left = [entry.name for entry in folder.iterdir()]
    shutil.rmtree(folder)
    assert left == []


TOPOLOGY = """
link_layer = "{link_layer}"
[[switch]]
name = "switch0"
ports = 8
[[host]]
name = "host"
count = 4
switch = "switch0"
"""


@pytest.fixture(params=["ethernet"])
def fabric(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Lab]:
    """The lab with its default fabric up: four hosts at one switch; param: their link layer."""
    topology = lab.build / "topology.toml"
    topology.write_text(TOPOLOGY.format(link_layer=request.param))
    lab.nupa("up", "--topology", str(topology))
    yield lab
    lab.nupa("down")
