# SPDX-License-Identifier: BSD-3-Clause
"""What tests of several folders start from."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests.programs.users import User

# A machine that is busy takes its time: that is no failure of an example.  One profile for all: who
# loads another one loads it for every folder.
hypothesis.settings.register_profile(
    "nupa",
    hypothesis.settings(),
    deadline=None,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("nupa")


@pytest.fixture(scope="session")
def nobody() -> Iterator[User]:
    """uid 65534, who may not read where we live, and has no privileges."""
    # Here: it imports pyroute2, which most tests do without.
    from tests.programs import users

    if os.geteuid() != 0:
        pytest.skip("only root can become another user; ours is an ordinary one, and is tested")
    folder = Path(tempfile.mkdtemp(prefix="nupa-test-"))
    yield users.nobody(folder)
    shutil.rmtree(folder)
