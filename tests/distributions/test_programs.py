# SPDX-License-Identifier: BSD-3-Clause
"""Programs of each release over our libraries: they find the device, and their data arrives."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from nupa.programs.unpacked import LIBRARIES
from tests.distributions.release import Release
from tests.programs.rdmacm.cm_stage import SERVER, port, start
from tests.programs.stage import Stage, sizes_of

pytestmark = pytest.mark.timeout(600)  # the first test of a release downloads it

PYVERBS = Path(__file__).with_name("pyverbs_messages.py")
MODULES = Path(__file__).with_name("pyverbs_modules.py")
PINGPONGS = ("rc", "uc", "ud", "srq", "xsrq")
PERFTEST = (
    "ib_write_bw",
    "ib_write_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_read_lat",
    "ib_atomic_lat",
)


class Meeting(NamedTuple):
    """Command lines of a server and its client, and the words with which both end well.

    *port*: the only one that they know.
    """

    server: str
    client: str
    says: str
    space: str = "tcp"
    port: str = ""


STREAM = "-S 1000 -I 100"
MEETINGS = {
    "rping": Meeting("rping -s -V -v -C 5", f"rping -c -a {SERVER} -V -v -C 5", "rdma-ping-4"),
    "ucmatose": Meeting("ucmatose", f"ucmatose -s {SERVER}", "data transfers complete"),
    "udaddy": Meeting("udaddy", f"udaddy -s {SERVER}", "data transfers complete", "udp", "7174"),
    "rdma_client": Meeting("rdma_server", f"rdma_client -s {SERVER}", "end 0"),
    "rdma_xclient": Meeting("rdma_xserver", f"rdma_xclient -s {SERVER}", "end 0"),
    "rstream": Meeting(f"rstream {STREAM}", f"rstream -s {SERVER} {STREAM}", "custom"),
}


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


def test_rdma_of_iproute2_shows_the_device(release: Release, fabric: Stage) -> None:
    (link,) = json.loads(output(fabric, release.command("rdma", "-j", "link")))
    assert (link["ifname"], link["port"], link["state"]) == ("nupa_rdma0", 1, "ACTIVE")
    (counts,) = json.loads(output(fabric, release.command("rdma", "-j", "res")))
    assert (counts["pd"], counts["qp"], counts["ctx"]) == (0, 0, 0)
    assert "rx_no_receive" in output(fabric, release.command("rdma", "statistic"))


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


@pytest.mark.parametrize("program", MEETINGS)
def test_programs_meet_by_rdma_cm(release: Release, fabric: Stage, program: str) -> None:
    meeting = MEETINGS[program]
    number = meeting.port or port()
    choice = [] if meeting.port else ["-p", number]
    server = release.command(*meeting.server.split(), *choice)
    client = release.command(*meeting.client.split(), *choice)
    with start(fabric, server, client, number=number, space=meeting.space) as pair:
        result = pair.wait().check()
    for said in (result.server.stdout, result.client.stdout):
        assert meeting.says in said


def test_pyverbs_sends_and_writes(release: Release, fabric: Stage) -> None:
    said = output(fabric, release.python(str(PYVERBS)))
    assert said.splitlines() == ["nupa_rdma0 True", "intact"]


def test_each_module_of_pyverbs_and_each_driver_loads(release: Release, fabric: Stage) -> None:
    drivers = sorted((release.root / "usr/lib/x86_64-linux-gnu/libibverbs").glob("*.so"))
    assert len(drivers) > 10
    mapped = output(fabric, release.python(str(MODULES), *map(str, drivers))).split()
    assert {driver.name for driver in drivers if not driver.is_symlink()} <= set(mapped)
    for library in ("libmlx5.so.1.", "libefa.so.1."):
        assert any(name.startswith(library) for name in mapped)
