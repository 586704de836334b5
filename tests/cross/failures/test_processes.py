# SPDX-License-Identifier: BSD-3-Clause
"""Processes that stop, fork, sit idle or vanish; and what they leave behind: nothing."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nupa.base.ownership import outer_uid
from nupa.fabric import Fabric
from tests.cross.conftest import SIZE, Cli, Pair
from tests.cross.peers.node import WAIT_S
from tests.cross.peers.peer import Peer, PeerError
from tests.cross.peers.streams import WINDOW

MakePair = Callable[..., Pair]
Spawn = Callable[[], Peer]

MIB = 1 << 20
BLOCKS_OF_A_PAGE = 4096 // 512
DEFAULT = "nupa-0-default"  # in own_shm every process is root, if only of a namespace
OWN = f"nupa-{os.geteuid() or outer_uid()}"  # and is known by our number outside


# --- stopped and continued ----------------------------------------------------------------------


@pytest.mark.parametrize("stopped", ["sender", "receiver"])
@pytest.mark.parametrize("length", [64, 20_000])
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_a_stopped_process_loses_nothing(
    make_pair: MakePair, mover: str, length: int, stopped: str
) -> None:
    # 4.096 us * 2^10 * 2: 8 ms, less than the stop: an adapter answers for a stopped process.
    pair = make_pair(mover=mover, path={"timeout": 10, "retry_cnt": 1})
    pair.b.prepare_stream_in(length)
    receiving = pair.b.begin("stream_in", length, note_every=20)
    sending = pair.a.begin("stream_out", length)
    victim = pair.a if stopped == "sender" else pair.b

    for _ in range(3):
        receiving.note()
        victim.signal(signal.SIGSTOP)
        wait_state(victim, "T")
        stay(0.05)
        victim.signal(signal.SIGCONT)
        receiving.note()

    sending.stop()
    sent, status = sending.result()
    assert status == "SUCCESS"
    receiving.stop()
    received, status = receiving.result()
    assert status == "SUCCESS"
    assert sent - WINDOW <= received <= sent
    assert pair.b.stream_in_rest(length, received, sent) == sent


@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_additions_by_a_stopped_process_are_neither_lost_nor_doubled(
    make_pair: MakePair, mover: str
) -> None:
    pair = make_pair(mover=mover, path={"timeout": 10, "retry_cnt": 1})
    adding = pair.a.begin("stream_ops", "faa", 8, pair.b_region, note_every=10)
    for victim in (pair.a, pair.b, pair.a, pair.b):
        adding.note()
        victim.signal(signal.SIGSTOP)
        wait_state(victim, "T")
        stay(0.02)
        victim.signal(signal.SIGCONT)

    adding.stop()
    added, status = adding.result()

    assert status == "SUCCESS"
    assert int.from_bytes(pair.b.load(0, 0, 8), "little") == added


def wait_state(peer: Peer, state: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while Path(f"/proc/{peer.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != state:
        assert time.monotonic() < deadline


def stay(seconds: float) -> None:
    """Lets real time pass for others: what is tested is that nothing happens meanwhile."""
    select.select([], [], [], seconds)


# --- fork ---------------------------------------------------------------------------------------


def test_a_fork_leaves_the_objects_of_the_parent_alone(make_pair: MakePair) -> None:
    pair = make_pair()
    pair.b.prepare_stream_in(5000)

    # The child closes its copies of everything, as Python does at its end.
    assert pair.a.fork([]) == []

    receiving = pair.b.begin("stream_in", 5000, 500)
    assert pair.a.stream_out(5000, 500) == (500, "SUCCESS")
    assert receiving.result() == (500, "SUCCESS")
    assert pair.a.stream_ops("faa", 8, pair.b.register(8), 100) == (100, "SUCCESS")
    assert pair.a.state() == pair.b.state() == "RTS"


def test_a_child_may_attach_anew(fabric: Fabric, make_pair: MakePair) -> None:
    pair = make_pair()

    (slot, region, address, _) = pair.a.fork(
        [
            ("attach", (fabric.name, 0), {}),
            ("register", (SIZE,), {}),
            ("make_qp", (), {}),
            ("write_to_itself", (), {}),
        ]
    )

    assert slot not in {1, 2}
    assert region.length == SIZE
    assert address.qp_num >> 16 == slot
    assert len(fabric.processes()) == 2
    pair.b.recv()
    pair.a.post("send", 0, 0, 8)
    assert pair.a.wait()[0].status == "SUCCESS"


def test_a_fork_in_the_middle_of_traffic(make_pair: MakePair) -> None:
    pair = make_pair(mover="relay")
    pair.b.prepare_stream_in(3000)
    receiving = pair.b.begin("stream_in", 3000, note_every=50)
    sending = pair.a.begin("stream_out", 3000, fork_every=200)
    for _ in range(40):
        receiving.note()

    sending.stop()
    sent, status = sending.result()
    assert status == "SUCCESS"
    assert sent > 200
    receiving.stop()
    received, _ = receiving.result()
    assert pair.b.stream_in_rest(3000, received, sent) == sent


# --- memory -------------------------------------------------------------------------------------


def test_an_idle_fabric_of_two_hosts_holds_under_4_mib(fabric: Fabric, spawn: Spawn) -> None:
    """The sum is the segment (st_blocks) and the private memory that both processes gain (RssAnon
    of proc(5)).  Each process attaches and makes a CQ, a region and a connected QP."""
    peers = spawn(), spawn()
    before = [peer.rss_bytes() for peer in peers]

    addresses = []
    for host, peer in enumerate(peers):
        peer.attach(fabric.name, host)
        peer.register(4096)
        addresses.append(peer.make_qp())
    peers[0].connect(addresses[1])
    peers[1].connect(addresses[0])

    segment = Path(fabric.path).stat().st_blocks * 512
    private = sum(
        peer.rss_bytes()["RssAnon"] - was["RssAnon"]
        for peer, was in zip(peers, before, strict=True)
    )
    print(f"segment {segment / MIB:.2f} MiB, private {private / MIB:.2f} MiB")
    assert segment + private < 4 * MIB


def test_pages_that_a_process_maps_are_those_of_the_segment(fabric: Fabric, spawn: Spawn) -> None:
    peer = spawn()
    before = peer.rss_bytes()["RssShmem"]
    peer.attach(fabric.name, 0)

    assert peer.rss_bytes()["RssShmem"] - before <= Path(fabric.path).stat().st_blocks * 512


# --- nothing stays ------------------------------------------------------------------------------


def test_closing_everything_gives_all_memory_back(fabric: Fabric, make_pair: MakePair) -> None:
    empty = Path(fabric.path).stat().st_blocks
    pair = make_pair(mover="relay")
    assert pair.a.stream_ops("write", SIZE, pair.b_region, 5) == (5, "SUCCESS")
    assert Path(fabric.path).stat().st_blocks > empty

    pair.a.leave()
    pair.b.leave()

    # Counters stay: a page a slot that had traffic.
    assert Path(fabric.path).stat().st_blocks <= empty + 2 * BLOCKS_OF_A_PAGE
    assert fabric.processes() == []


@pytest.mark.parametrize("where", [f"/dev/shm/{OWN}", "NUPA_DIR"])
def test_after_sigkill_of_everything_the_next_command_leaves_nothing(
    own_shm: Callable[[int], Spawn], tmp_path: Path, where: str
) -> None:
    peer = own_shm(64 * MIB)()
    folder = where
    if where == "NUPA_DIR":
        folder = str(tmp_path)
        peer.set_env(NUPA_DIR=folder)
    for _ in range(2):
        peer.start_attached()
    assert peer.listing(folder) == [DEFAULT]

    for number in range(2):
        peer.end_started(number, signal.SIGKILL)
    assert peer.listing(folder) == [DEFAULT]

    code, said = peer.nupa("ls")
    assert code == 0
    assert "no fabric is up" in said
    assert peer.listing(str(tmp_path) if where == "NUPA_DIR" else "/dev/shm") == []


def test_an_automatic_fabric_goes_with_its_last_user(own_shm: Callable[[int], Spawn]) -> None:
    peer = own_shm(64 * MIB)()
    for _ in range(2):
        peer.start_attached()

    assert peer.end_started(0, signal.SIGTERM) == -signal.SIGTERM
    assert peer.listing(f"/dev/shm/{OWN}") == [DEFAULT]
    assert peer.end_started(1, signal.SIGINT) == -signal.SIGINT
    assert peer.listing("/dev/shm") == []


def test_a_fabric_that_was_made_stays_when_all_its_users_are_killed(
    own_shm: Callable[[int], Spawn],
) -> None:
    peer = own_shm(64 * MIB)()
    assert peer.nupa("up")[0] == 0
    peer.start_attached()
    peer.end_started(0, signal.SIGKILL)

    code, shown = peer.nupa("show", "--json")

    assert code == 0
    assert [host["processes"] for host in json.loads(shown)["hosts"]] == [[], []]
    assert peer.nupa("down")[0] == 0
    assert peer.listing("/dev/shm") == []


def test_a_fabric_taken_down_by_force_lets_its_users_end(
    fabric: Fabric, make_pair: MakePair, cli: Cli, spawn: Spawn
) -> None:
    pair = make_pair()
    refused = cli("down", "cross")
    assert refused.returncode == 1
    assert f"pid {pair.a.pid}" in refused.stderr

    assert cli("down", "cross", "--force").returncode == 0

    assert not Path(fabric.path).exists()
    assert pair.a.stream_ops("write", SIZE, pair.b_region, 2) == (2, "SUCCESS")
    with pytest.raises(PeerError):
        spawn().attach("cross")
    pair.a.leave()
    pair.b.leave()


def test_many_processes_come_and_go(fabric: Fabric, spawn: Spawn) -> None:
    stayer = spawn()
    stayer.attach(fabric.name, 0)
    region = stayer.register(SIZE)
    blocks = []
    for round_ in range(12):
        guest = spawn()
        guest.attach(fabric.name, 1)
        guest.register(SIZE)
        address = guest.make_qp()
        guest.connect(stayer.make_qp())
        stayer.connect(address)
        assert guest.stream_ops("write", 10_000, region, 5) == (5, "SUCCESS")
        if round_ % 2:
            guest.leave()
        guest.close()
        assert [slot.pid for slot in fabric.processes()] == [stayer.pid]
        blocks.append(Path(fabric.path).stat().st_blocks)

    # A page or two that the stayer touched after the guest's memory was given back.
    assert blocks[-1] <= blocks[1] + 4 * BLOCKS_OF_A_PAGE, blocks
