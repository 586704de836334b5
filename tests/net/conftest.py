# SPDX-License-Identifier: BSD-3-Clause
"""Fabrics with interfaces for tests.  Most tests want `net`::

def test_hosts_reach_each_other(net: Net) -> None:
    net.exec("host0", ["ping", "-c", "1", ip(1)])
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.net.lab import Net, closed
from tests.programs import users
from tests.programs.needs import needs_interfaces
from tests.programs.users import User


@pytest.fixture(scope="session")
def _possible() -> None:
    """Skips where no interface can be made, and says what is missing."""
    needs_interfaces()


@pytest.fixture
def make_net(_possible: None) -> Iterator[Callable[..., Net]]:
    """Makes fabrics of a user, each in a folder of its own, with nothing up yet."""
    with ExitStack() as stack:

        def make(user: User | None = None) -> Net:
            user = user or users.ourselves()
            folder = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
            os.chown(folder, user.uid, -1)
            return stack.enter_context(closed(Net(folder, user)))

        yield make


@pytest.fixture
def down(make_net: Callable[..., Net]) -> Net:
    """Ours, with nothing up."""
    return make_net()


@pytest.fixture
def net(down: Net) -> Net:
    """Ours: two hosts, host0 and host1, with their interfaces up."""
    down.ok("net", "up")
    return down


@pytest.fixture(params=["ourselves", "nobody"])
def by_user(request: pytest.FixtureRequest, make_net: Callable[..., Net]) -> Net:
    """Each user's, with nothing up."""
    ours = request.param == "ourselves"
    return make_net(users.ourselves() if ours else request.getfixturevalue("nobody"))


@pytest.fixture
def net_by_user(by_user: Net) -> Net:
    """Each user's: two hosts with their interfaces up."""
    by_user.ok("net", "up")
    return by_user
