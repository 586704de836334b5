# SPDX-License-Identifier: BSD-3-Clause
"""Two machines with a wire between their fabrics, of this module.

A module that needs another MTU than Ethernet's says so: MTU_BYTES = 9000.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.common.impair import build
from tests.common.namespaces import ETHERNET_MTU_BYTES, Namespace, machines
from tests.programs import users
from tests.programs.clock import quick_clock
from tests.programs.users import User
from tests.wire.lab import Wired, wired

__all__ = ["quick_clock"]


@pytest.fixture(scope="session")
def impair(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program that impaired() runs."""
    return build(tmp_path_factory.mktemp("impair"))


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Namespace, Namespace]]:
    mtu_bytes = getattr(request.module, "MTU_BYTES", ETHERNET_MTU_BYTES)
    with machines(2, mtu_bytes=mtu_bytes) as (left, right):
        yield left, right


@pytest.fixture(scope="module")
def wire(pair: tuple[Namespace, Namespace]) -> Iterator[Wired]:
    """Ours."""
    with wired(pair, users.ourselves()) as stage:
        yield stage


@pytest.fixture(scope="module")
def two_wires() -> Iterator[Wired]:
    """Two between the same machines: host2 of either fabric is reached by IPv6."""
    with machines(2) as others, wired(others, users.ourselves(), hosts=3) as stage:
        for end in (0, 1):
            stage.side(end).ok("wire", "add", "host2", "--address", others[1 - end].ipv6)
        yield stage


@pytest.fixture(scope="module")
def wire_of_nobody(nobody: User) -> Iterator[Wired]:
    """uid 65534's, on machines of its own: an address has one wire."""
    with machines(2, mtu_bytes=9000) as others, wired(others, nobody) as stage:
        yield stage
