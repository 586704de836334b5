# SPDX-License-Identifier: BSD-3-Clause
"""Programs that see no device are told why, once, on stderr."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.programs.needs import needs

from .lab import Lab

LIBRARIES = Path(sys.modules["nupa"].__path__[0], "lib")
NOBODY = 65534


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "program.c"
    path.write_text("int main(void) { return 0; }\n")
    return path


def test_nupa_run_says_it_of_a_static_program(fabric: Lab, source: Path) -> None:
    program = fabric.compile(source, "-static")
    outcome = fabric.run(fabric.on(None, program)).check()
    says = (
        "is linked statically, so it has a libibverbs of its own, or none: it sees no RDMA device"
    )
    assert outcome.stderr == f"nupa: {program} {says}; programs that it starts may\n"
    assert fabric.run(fabric.on(None, program), env={"NUPA_QUIET": "1"}).stderr == ""
    assert fabric.run(fabric.on(None, fabric.compile(source))).stderr == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_nupa_run_says_it_of_a_set_uid_program(fabric: Lab, source: Path) -> None:
    program = fabric.compile(source)
    os.chown(program, NOBODY, NOBODY)
    Path(program).chmod(0o4755)
    if os.statvfs(program).f_flag & os.ST_NOSUID:
        pytest.skip(f"{program} is on a file system that is mounted nosuid")
    outcome = fabric.run(fabric.on(None, program)).check()
    assert outcome.stderr.startswith(
        f"nupa: {program} is set-uid (user {NOBODY}): the loader keeps"
    )


def test_the_library_says_it_without_the_environment_of_nupa_run(lab: Lab) -> None:
    devices = needs("ibv_devices", "ibverbs-utils")
    env = {"LD_LIBRARY_PATH": str(LIBRARIES), "NUPA_FABRIC": ""}
    outcome = lab.run([devices], env=env).check()
    assert "nupa_rdma0" not in outcome.stdout
    assert outcome.stderr.startswith("nupa: there is no RDMA device, as NUPA_FABRIC is not set")
    assert outcome.stderr.count("\n") == 1
    assert lab.run([devices], env={**env, "NUPA_QUIET": "1"}).stderr == ""
