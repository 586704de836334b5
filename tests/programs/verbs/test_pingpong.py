# SPDX-License-Identifier: BSD-3-Clause
"""ibv_{rc,uc,ud,srq}_pingpong of ibverbs-utils, which print what they measured."""

from __future__ import annotations

import re

import pytest

from tests.programs.stage import Stage

PROGRAMS = ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"]


def exchanged(output: str) -> list[int]:
    return [int(count) for count in re.findall(r"^(\d+) iters in", output, re.MULTILINE)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_pingpong_that_polls_exchanges_all_its_messages(everywhere: Stage, program: str) -> None:
    result = everywhere.run_pair([program, "-g", "1", "-n", "500"])
    assert exchanged(result.server.stdout) == exchanged(result.client.stdout) == [500]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_pingpong_that_sleeps_on_events_finds_its_data_intact(
    everywhere: Stage, program: str
) -> None:
    result = everywhere.run_pair([program, "-g", "1", "-n", "500", "-e", "-c"])
    assert exchanged(result.server.stdout) == exchanged(result.client.stdout) == [500]
    assert "invalid data" not in result.server.stdout + result.client.stdout


@pytest.mark.parametrize("size", ["1", "4097", "1048576"])
@pytest.mark.parametrize("program", ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong"])
def test_messages_of_odd_and_large_sizes_arrive_intact(
    moved: Stage, program: str, size: str
) -> None:
    result = moved.run_pair([program, "-g", "1", "-n", "50", "-r", "20", "-s", size, "-c"])
    assert exchanged(result.client.stdout) == [50]
    assert "invalid data" not in result.server.stdout + result.client.stdout


@pytest.mark.parametrize("options", [("-t",), ("-N",), ("-t", "-e", "-c"), ("-N", "-e", "-c")])
def test_timestamps_and_the_extended_way_of_posting_work(
    moved: Stage, options: tuple[str, ...]
) -> None:
    result = moved.run_pair(["ibv_rc_pingpong", "-g", "1", *options])
    assert exchanged(result.server.stdout) == exchanged(result.client.stdout) == [1000]


@pytest.mark.parametrize("options", [("-o",), ("-o", "-P"), ("-o", "-O"), ("-j",), ("-j", "-c")])
def test_memory_on_demand_and_of_the_device_works(moved: Stage, options: tuple[str, ...]) -> None:
    result = moved.run_pair(["ibv_rc_pingpong", "-g", "1", *options])
    assert exchanged(result.server.stdout) == exchanged(result.client.stdout) == [1000]


def test_two_programs_of_one_host_reach_each_other(moved: Stage) -> None:
    pair = moved.pair(["ibv_rc_pingpong", "-g", "1", "-c"], hosts=("host0", "host0"))
    result = pair.run().check()
    assert exchanged(result.client.stdout) == [1000]


@pytest.mark.parametrize("options", [(), ("-e",), ("-s", "100000")])
def test_xrc_pingpong_reaches_the_shared_queue_of_its_client(
    moved: Stage, options: tuple[str, ...]
) -> None:
    result = moved.run_pair(["ibv_xsrq_pingpong", "-g", "1", *options])
    for output in (result.server.stdout, result.client.stdout):
        assert output.rstrip().endswith("success")
