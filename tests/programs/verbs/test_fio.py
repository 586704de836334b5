# SPDX-License-Identifier: BSD-3-Clause
"""fio's rdma engine by the job file of `nupa demo`: both verbs, by each mover."""

from __future__ import annotations

import pytest

from nupa.programs import fio
from nupa.programs.pair import ProgramPair
from tests.programs.stage import Stage


def pair(stage: Stage, job: fio.Job) -> ProgramPair:
    given = [f"{name}={value}" for name, value in job.environment().items()]
    return ProgramPair(
        stage.nupa_run(["env", *given, *job.command("server")], "host0"),
        stage.nupa_run(["env", *given, *job.command("client")], "host1"),
        env=stage.env,
        ready=fio.READY,
        deadline_s=40.0,
    )


@pytest.mark.parametrize(("block_bytes", "depth"), [(4096, 1), (1 << 20, 32)])
def test_blocks_are_written_for_as_long_as_asked(
    moved: Stage, block_bytes: int, depth: int
) -> None:
    # 0.6 s: for 0.5 of them the engine sleeps.
    job = fio.Job("rdma", block_bytes, depth, "10.0.0.1", ramp_s=0.6, seconds=0.2)
    result = pair(moved, job).run().check()
    rate = fio.parse(result.client.stdout)
    assert rate.seconds == pytest.approx(0.2, abs=0.1)
    # fio counts a block when it is queued and its bytes when it is complete: those under way at
    # the ramp's end count as bytes alone.
    written = fio.jobs(result.client.stdout)[0]["write"]
    beyond = written["io_bytes"] - written["total_ios"] * block_bytes
    assert 0 <= beyond <= depth * block_bytes


def test_a_client_of_an_address_without_a_host_ends_with_what_is_wrong(stage: Stage) -> None:
    job = fio.Job("rdma", 4096, 1, "10.0.0.77", ramp_s=0.0, seconds=0.1)
    given = [f"{name}={value}" for name, value in job.environment().items()]
    outcome = stage.run(["env", *given, *stage.nupa_run(job.command("client"), "host1")])
    assert outcome.returncode != 0
    assert "event is RDMA_CM_EVENT_ADDR_ERROR" in outcome.stderr
