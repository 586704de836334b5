# SPDX-License-Identifier: BSD-3-Clause
"""Peers under two kernels; a file that has other ones says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cross.conftest import peers_of
from tests.cross.peers.kernels import Kernels
from tests.cross.peers.peer import Peer


@pytest.fixture
def spawn(kernels: Kernels, nupa_dir: Path) -> Iterator[Callable[[], Peer]]:
    """Makes peers, by turns under two kernels."""
    turns = itertools.cycle((0, 1))
    yield from peers_of(lambda: kernels[next(turns)].peer(), nupa_dir)


@pytest.fixture(params=["relay", None], ids=lambda mover: mover or "chosen")
def mover(request: pytest.FixtureRequest) -> str | None:
    """Gives each kind of memory between kernels."""
    return request.param  # type: ignore[no-any-return]
