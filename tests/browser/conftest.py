# SPDX-License-Identifier: BSD-3-Clause
"""One browser for all tests, and a fabric of 24 hosts and 4 switches that is served."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.topology.file import load
from tests.browser.chromium import Browser, browser
from tests.browser.serving import serving


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with (
        tempfile.TemporaryDirectory(prefix="nupa-browser-") as folder,
        browser(Path(folder)) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    """The preset gpu24, in a folder of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="nupa-browser-", dir="/dev/shm") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("NUPA_DIR", folder)
        patch.delenv("NUPA_FABRIC", raising=False)
        with Fabric.create("gpu24", load("gpu24")) as made:
            yield made
        Fabric.remove("gpu24", force=True)


@pytest.fixture(scope="module")
def served(fabric: Fabric) -> Iterator[str]:
    """The address of the page, with changes allowed."""
    with serving(fabric.name, allow_changes=True) as url:
        yield url
