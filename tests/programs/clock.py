# SPDX-License-Identifier: BSD-3-Clause
"""A clock for perftest that is read quickly: its own takes half a second to calibrate itself."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def quick_clock() -> Iterator[str]:
    """Of quick_clock.c: a world-readable library."""
    folder = Path(tempfile.mkdtemp(prefix="nupa-test-"))
    folder.chmod(0o755)
    library = folder / "quick_clock.so"
    source = Path(__file__).with_name("quick_clock.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    yield str(library)
    shutil.rmtree(folder)
