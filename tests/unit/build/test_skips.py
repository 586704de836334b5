# SPDX-License-Identifier: BSD-3-Clause
"""Skips in CI: a test that is skipped for want of something fails there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[2] / "conftest.py"


@pytest.mark.parametrize(
    ("reason", "policy", "code"),
    [
        ("no tshark: apt-get install tshark", "fail", 1),
        ("no tshark: apt-get install tshark", "", 0),
        ("only root can become another user", "fail", 0),
    ],
)
def test_a_skip_fails_where_it_is_forbidden(
    tmp_path: Path, reason: str, policy: str, code: int
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text(
        f"import pytest\n\n\ndef test_it() -> None:\n    pytest.skip({reason!r})\n"
    )
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    env = {**os.environ, "NUPA_SKIPS": policy}
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stdout
    assert (reason in done.stdout) == (code == 1)
