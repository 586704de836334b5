# SPDX-License-Identifier: BSD-3-Clause
"""Programs of each release over our libraries: they find the device, and their data arrives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from nupa.programs.pair import PairResult
from tests.distributions.release import LIBRARIES, Release
from tests.programs.rdmacm.cm_stage import SERVER, port, start
from tests.programs.stage import Stage, sizes_of

pytestmark = pytest.mark.timeout(600)  # the first test of a release downloads it

PYVERBS = Path(__file__).with_name("pyverbs_messages.py")
PINGPONGS = ("rc", "uc", "ud", "srq", "xsrq")
PERFTEST = (
    "ib_write_bw",
    "ib_write_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_read_lat",
    "ib_atomic_lat",
)


def output(fabric: Stage, command: Sequence[str]) -> str:
    return fabric.run(fabric.nupa_run(command)).check().stdout


def test_libraries_are_ours_and_all_others_the_releases_own(
    release: Release, fabric: Stage
) -> None:
    command = release.command("rping")
    listed = output(fabric, [command[0], "--list", *command[3:]])
    paths = [Path(path) for path in re.findall(r"(/\S+) \(0x", listed)]
    ours = {path.name for path in paths if path.parent == LIBRARIES}
    assert ours >= {"libibverbs.so.1", "librdmacm.so.1"}
    others = [path for path in paths if path.parent != LIBRARIES]
    assert others
    assert [path for path in others if release.root not in path.parents] == []


def test_the_device_is_listed(release: Release, fabric: Stage) -> None:
    assert re.search(
        r"^\s*nupa_rdma0\s+[0-9a-f]{16}$",
        output(fabric, release.command("ibv_devices")),
        re.MULTILINE,
    )
    shown = output(fabric, release.command("ibv_devinfo", "-v"))
    assert re.search(r"state:\s+PORT_ACTIVE \(4\)", shown)
    assert "GID[  1]" in shown
    shown = output(fabric, release.command("ibstat"))
    assert "CA 'nupa_rdma0'" in shown
    assert "State: Active" in shown


@pytest.mark.parametrize("kind", PINGPONGS)
def test_a_pingpong_finds_its_data_intact(release: Release, fabric: Stage, kind: str) -> None:
    check = [] if kind == "xsrq" else ["-c"]
    result = fabric.run_pair(
        release.command(f"ibv_{kind}_pingpong", "-g", "1", "-n", "200", *check)
    )
    for said in (result.server.stdout, result.client.stdout):
        assert "invalid data" not in said
        assert re.search(r"^200 iters in|^success$", said, re.MULTILINE)


@pytest.mark.parametrize("program", PERFTEST)
def test_perftest_measures(release: Release, fabric: Stage, program: str) -> None:
    result = fabric.run_pair(release.command(program, "-F", "-n", "100"))
    assert sizes_of(result.client.stdout) in ([65536], [2], [8])


def meet(fabric: Stage, release: Release, program: str, *options: str) -> PairResult:
    number = port()
    server = release.command(
        program, *(["-s"] if program == "rping" else []), "-p", number, *options
    )
    to = ["-c", "-a", SERVER] if program == "rping" else ["-s", SERVER]
    client = release.command(program, *to, "-p", number, *options)
    with start(fabric, server, client, number=number) as pair:
        return pair.wait().check()


def test_rping_finds_its_data_intact(release: Release, fabric: Stage) -> None:
    result = meet(fabric, release, "rping", "-V", "-v", "-C", "5")
    assert re.findall(r"rdma-ping-(\d+)", result.client.stdout) == list("01234")


def test_ucmatose_transfers_messages_both_ways(release: Release, fabric: Stage) -> None:
    result = meet(fabric, release, "ucmatose")
    assert "data transfers complete" in result.server.stdout
    assert "data transfers complete" in result.client.stdout


def test_pyverbs_sends_and_writes(release: Release, fabric: Stage) -> None:
    said = output(fabric, release.python(str(PYVERBS)))
    assert said.splitlines() == ["nupa_rdma0 True", "intact"]
