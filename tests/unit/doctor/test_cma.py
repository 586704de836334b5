# SPDX-License-Identifier: BSD-3-Clause
"""nupa.doctor.cma: what `nupa doctor` says of CMA is what the engine finds."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

# Denies process_vm_readv and process_vm_writev to what it runs, by seccomp.
DENIED = Path(__file__).parents[2] / "programs" / "denied.py"
# One process would be `local`; so the peer is a child, of which this one is a parent.
PROBE = "from nupa.doctor.cma import probe_cma; print(probe_cma())"


def probe(*prefix: str) -> int:
    """Runs in a process of its own: it forks, which a process with threads should not."""
    command = [*prefix, sys.executable, "-c", PROBE]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert run.stderr == ""
    return int(run.stdout)


def test_a_seccomp_profile_that_denies_it_is_seen() -> None:
    assert probe(sys.executable, str(DENIED)) == errno.EPERM


def test_it_works_where_a_parent_may_read_a_child_and_yama_lets_siblings_in() -> None:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and int(scope.read_text()) > 1:
        pytest.skip("Yama's ptrace_scope is above 1")
    assert probe() == 0


@pytest.mark.parametrize("code", [0, 7])
def test_a_child_tells_what_its_work_returned(code: int) -> None:
    script = f"import sys; from nupa.doctor.cma import in_child; sys.exit(in_child(lambda: {code}))"
    assert (
        subprocess.run([sys.executable, "-c", script], timeout=30, check=False).returncode == code
    )
