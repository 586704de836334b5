# SPDX-License-Identifier: BSD-3-Clause
"""Limits (ulimit) that are too low, and calls that are denied: one line on stderr names the cause.

csrc/tests/device/test_refusals.c has the calls of which a device is opened.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nupa.programs.pair import NUPA, ProgramOutcome, free_port
from tests.programs.needs import needs
from tests.programs.stage import DENIED

from .lab import Lab


def pingpong(fabric: Lab, limit: str) -> ProgramOutcome:
    """Returns how a client under a limit ends, whose server has none."""
    needs("ibv_rc_pingpong", "ibverbs-utils")
    port = free_port()
    server = ["ibv_rc_pingpong", "-g", "1", "-n", "10", "-p", str(port)]
    client = ["sh", "-c", f"ulimit {limit}; exec {' '.join(server)} localhost"]
    return fabric.pair(server, client, port=port).run().client


@pytest.mark.parametrize("limit_mib", [100, 600])
def test_the_address_space_that_is_needed_is_named_and_suffices(
    fabric: Lab, limit_mib: int
) -> None:
    outcome = pingpong(fabric, f"-v {limit_mib << 10}")
    assert outcome.returncode != 0
    hint = re.search(
        r"^nupa: the address space of this process is too small: `ulimit -v` allows (\d+) MiB, "
        r"of which \d+ are in use, and \d+ more are needed: allow \d+ MiB \(`ulimit -v (\d+)`\)",
        outcome.stderr,
        re.MULTILINE,
    )
    assert hint, outcome.describe()
    assert int(hint[1]) == limit_mib
    assert outcome.stderr.count("too small") == 1
    enough = pingpong(fabric, f"-v {hint[2]}")
    assert (enough.returncode, enough.stderr) == (0, ""), enough.describe()


NODE_TYPE = "/sys/class/infiniband/nupa_rdma0/node_type"


def test_a_file_size_limit_ends_no_reader_of_the_devices_files(fabric: Lab) -> None:
    # Their output goes to a pipe: a file would have no room.
    limited = f"(ulimit -f 0; cat {NODE_TYPE}; echo $?) 2>&1 | cat"
    hint, refusal, code = fabric.must(fabric.on("host0", "sh", "-c", limited)).splitlines()
    assert re.fullmatch(
        "nupa: cannot make host0 below .*: File too large; raise `ulimit -f`; "
        "/sys/class/infiniband is not shown",
        hint,
    )
    assert (refusal, code) == (f"cat: {NODE_TYPE}: No such file or directory", "1")
    # Once they are there, nothing is written.
    assert fabric.must(fabric.on("host0", "cat", NODE_TYPE)) == "1: CA\n"
    assert fabric.must(fabric.on("host0", "sh", "-c", limited)) == "1: CA\n0\n"


def denied(call: str, *command: str) -> list[str]:
    return [sys.executable, str(DENIED), "--only", call, *command]


def test_a_denied_flock_is_named_by_programs_and_commands(fabric: Lab) -> None:
    devices = needs("ibv_devices", "ibverbs-utils")
    outcome = fabric.run(fabric.on("host0", *denied("flock", devices)))
    says = "flock: Operation not permitted; allow it in the seccomp profile"
    assert f"nupa: fabric default cannot be used: {says}\n" in outcome.stderr
    assert "Operation not permitted" in outcome.stderr.splitlines()[-1]  # by errno
    command = fabric.run(denied("flock", *NUPA, "show"))
    assert command.returncode == 1
    lock = fabric.folder / f"nupa-{os.geteuid()}.lock"
    assert command.stderr == f"nupa: {lock} cannot be locked: {says}\n"


def test_a_denied_fcntl_is_named_by_nupa_run(fabric: Lab) -> None:
    outcome = fabric.run(denied("fcntl", *NUPA, "run", "--", "true"))
    assert outcome.returncode == 1
    segment = fabric.folder / f"nupa-{os.geteuid()}-default"
    assert outcome.stderr == (
        f"nupa: {segment} cannot be locked: fcntl: Operation not permitted; "
        "allow it in the seccomp profile\n"
    )


# In a mount namespace: a folder for fabrics that is full after the first command.
FULL = """
set -e
mount -t tmpfs -o size=8m none {folder}
export NUPA_DIR={folder}
{nupa} up
cat /dev/zero > {folder}/ballast 2> /dev/null || :
{nupa} run -- cat {file} || echo exit $?
"""


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare: apt-get install util-linux")
def test_a_full_file_system_is_no_input_output_error(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    script = FULL.format(folder=folder, nupa=" ".join(NUPA), file=NODE_TYPE)
    command = ["unshare", "--mount", "--user", "--map-root-user", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    if done.stderr.startswith(("unshare:", "mount:")):
        pytest.skip(f"no user namespace with mounts here: {done.stderr}")
    assert "exit 1" in done.stdout, done
    assert "No space left on device; /sys/class/infiniband is not shown" in done.stderr
