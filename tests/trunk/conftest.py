# SPDX-License-Identifier: BSD-3-Clause
"""Clusters for tests: `down` has machines and a file, `two`, `joined` and `three` are up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trunk.lab import Cluster, cluster


@pytest.fixture
def down(tmp_path: Path) -> Iterator[Cluster]:
    """Two machines with nothing up."""
    with cluster(tmp_path) as lab:
        yield lab


@pytest.fixture
def two(down: Cluster) -> Cluster:
    """Two machines that are joined: host0 and host1 on alpha, host2 and host3 on beta."""
    down.up().check()
    return down


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The same, of all tests of a module."""
    with cluster(tmp_path_factory.mktemp("trunk")) as lab:
        lab.up().check()
        yield lab


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    """Three machines that are joined, each with one host."""
    with cluster(tmp_path, 3, hosts=3) as lab:
        lab.up().check()
        yield lab
