# SPDX-License-Identifier: BSD-3-Clause
"""`nupa` in this process, for the tests of commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.cli.command import Nupa


@pytest.fixture
def nupa(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Nupa:
    """Runs `nupa`, or the command that WORDS of the test's module names."""
    return Nupa(capsys, getattr(request.module, "WORDS", ()))


@pytest.fixture
def nupa_fails(nupa: Nupa) -> Callable[..., str]:
    return nupa.fails
