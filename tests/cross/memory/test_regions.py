# SPDX-License-Identifier: BSD-3-Clause
"""Regions among processes: what the death of an owner, or of who maps, does to the others."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nupa.fabric import Fabric, LocalError, RemoteError
from tests.cross.peers.node import WAIT_S

Start = Callable[[str], "subprocess.Popen[str]"]
SIZE = 1 << 20
EXTENT = 65536

OWNS = """
pool.alloc(1 << 20, "alone")
shared = pool.alloc(1 << 20, "shared", ["host1"])
host.map(shared).write(0, b"kept")
memory = pool.reserve(1 << 20)
pool.publish([memory.offset], 1 << 20, "device", ["host1"])
"""
MAPS = """
window = host.map(pool.find("mapped"))
"""
WATCHES = """
window = host.map(pool.find("mapped"))
say("ready")
while not window.revoked:
    pass
assert bytes(window.memory[:2]) == b"\\xff\\xff"
say("revoked")
"""


@pytest.fixture
def start(fabric: Fabric) -> Iterator[Start]:
    """Runs some lines in a process of its own, on host0, which then waits until it is ended."""
    running: list[subprocess.Popen[str]] = []

    def run(lines: str) -> subprocess.Popen[str]:
        before = (
            "import sys\nfrom nupa.fabric import Fabric\n"
            "say = lambda word: print(word, flush=True)\n"
            f"fabric = Fabric.open({fabric.name!r})\npool, host = fabric.pool, fabric.host(0)\n"
        )
        program = subprocess.Popen(
            [sys.executable, "-c", f"{before}{lines}\nsay('ready')\nsys.stdin.read()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(program)
        heard(program, "ready")
        return program

    yield run
    for program in running:
        program.kill()
        program.communicate(timeout=WAIT_S)


def heard(program: subprocess.Popen[str], word: str) -> None:
    assert program.stdout is not None
    assert program.stdout.readline() == f"{word}\n"


def kill(program: subprocess.Popen[str]) -> None:
    program.kill()
    program.wait(WAIT_S)


def stop(program: subprocess.Popen[str]) -> None:
    """Stops all its threads, each of which stops when it gets to it."""
    program.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + WAIT_S
    while not all(
        stat.read_text().rpartition(")")[2].split()[0] == "T"
        for stat in Path(f"/proc/{program.pid}/task").glob("*/stat")
    ):
        assert time.monotonic() < deadline


def test_a_killed_owner_leaves_what_others_share(fabric: Fabric, start: Start) -> None:
    owner, pool = start(OWNS), fabric.pool
    assert {region.tag for region in pool.regions()} == {"alone", "shared", "device"}
    assert pool.find("shared").owner == ("host0", owner.pid)
    assert pool.leaks() == []
    with fabric.host(1).map(pool.find("shared")) as window:
        kill(owner)
        (leak,) = pool.leaks()
        assert (leak.region.tag, leak.owner.pid) == ("shared", owner.pid)
        assert "others share it" in leak.why
        assert [region.tag for region in pool.regions()] == ["shared"]
        assert window.read(0, 4) == b"kept"
        leak.region.adopt("host1")
        assert leak.region.owner.host == "host1"
        assert leak.region.share == ("host0",)
        assert pool.leaks() == []
        assert (pool.quota("host0").used, pool.quota("host1").used) == (0, SIZE)
        assert window.read(0, 4) == b"kept"
    pool.find("shared").free()
    with pytest.raises(LocalError, match="no region 'shared'"):
        pool.find("shared")


def test_memory_of_a_killed_owner_is_taken_from_windows_before_it_is_given_again(
    fabric: Fabric, start: Start
) -> None:
    owner, pool = start(OWNS), fabric.pool
    window, alone = fabric.host(1).map(pool.find("device")), fabric.host(0).map(pool.find("alone"))
    window.write(0, b"device")
    kill(owner)
    deadline = time.monotonic() + WAIT_S
    while len(pool.regions()) > 1:
        assert time.monotonic() < deadline
    with pool.alloc(900 << 20, "most of the pool") as region, fabric.host(0).map(region) as other:
        assert other.read(0, SIZE) == bytes(SIZE)
        other.write(0, b"x" * SIZE)
        for lost in (window, alone):
            assert lost.revoked
            assert bytes(lost.memory[:8]) == b"\xff" * 8
            lost.memory[:8] = bytes(8)
        assert other.read(0, SIZE) == b"x" * SIZE
    window.close()
    alone.close()


def test_windows_of_a_killed_process_keep_nothing(fabric: Fabric, start: Start) -> None:
    region = fabric.pool.alloc(SIZE, "mapped")
    mapper = start(MAPS)
    assert region.mapped == 1
    with pytest.raises(LocalError, match="it has windows"):
        region.free()
    kill(mapper)
    assert region.mapped == 0
    region.free()


def test_a_region_that_is_freed_by_force_is_taken_from_every_process(
    fabric: Fabric, start: Start
) -> None:
    region = fabric.pool.alloc(SIZE, "mapped")
    mappers = [start(WATCHES), start(WATCHES)]
    assert region.mapped == 2
    region.free(force=True)
    for mapper in mappers:
        heard(mapper, "revoked")
    assert fabric.pool.regions() == []


def test_the_memory_of_who_is_stopped_is_kept_until_he_lets_go(
    fabric: Fabric, start: Start
) -> None:
    region = fabric.pool.alloc(SIZE, "mapped")
    mapper = start(WATCHES)
    stop(mapper)
    with pytest.raises(RemoteError, match=r"still has windows in .* \(pid \d+\) on host") as late:
        region.free(force=True)
    assert late.value.errno == errno.ETIMEDOUT
    assert region.revoked
    assert fabric.pool.quota("host0").used == SIZE
    mapper.send_signal(signal.SIGCONT)
    heard(mapper, "revoked")
    assert fabric.pool.regions() == []
    assert fabric.pool.quota("host0").used == 0
