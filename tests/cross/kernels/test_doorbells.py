# SPDX-License-Identifier: BSD-3-Clause
"""Doorbells between kernels: the peers are clients of one ivshmem server, as programs on a machine
are whose guests have doorbells (csrc/segment/bell.h)."""

from __future__ import annotations

import itertools
import mmap
import os
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from nupa.fabric import Fabric
from nupa.vm.machine import doorbell
from nupa.vm.machine.doorbell import DoorbellServer
from tests.cross.conftest import Pair
from tests.cross.kernels.test_machines import fabric  # noqa: F401  # a fixture
from tests.cross.peers.kernels import Kernels
from tests.cross.peers.node import WAIT_S
from tests.cross.peers.peer import Peer

MakePair = Callable[..., Pair]

# csrc/segment/bell.h: the longest sleep of who can be rung.  Naps are 2 ms at most.
LONG_S = 0.1
# Below this a wake-up was by a ring, not by the end of a long sleep.
SOON_S = 0.6 * LONG_S


class Bells:
    """A server in a thread; it can be ended before the test is over."""

    def __init__(self, memory: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nupa-test-")
        self.path = f"{self._folder.name}/bell.sock"
        self._memory = os.open(memory, os.O_RDWR | os.O_CLOEXEC)
        self._listener = doorbell.listen(self.path)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        server = DoorbellServer(self._listener, self._memory)
        while not self._ends.is_set():
            server.serve(WAIT_S)
        server.close()

    def end(self) -> None:
        """Ends as a server that is killed: its clients see the end of their connections."""
        if self._ends.is_set():
            return
        self._ends.set()
        with socket.socket(socket.AF_UNIX) as waker, suppress(OSError):
            waker.connect(self.path)
        self._thread.join(WAIT_S)
        self._listener.close()
        os.close(self._memory)
        self._folder.cleanup()


class Sleeper(NamedTuple):
    """The words of an attachment's doorbell: number + 1, or 0; which of its sleeps this is."""

    doorbell: int
    asleep: int


class Slots:
    """Slots as the memory has them (struct nupa_slot, csrc/segment/layout/layout.h)."""

    _SLOTS_OFF, _SLOT_BYTES, _LINE_4 = 96, 18 * 64, 256

    def __init__(self, path: str) -> None:
        with Path(path).open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        (self._off,) = struct.unpack_from("<Q", self._map, self._SLOTS_OFF)

    def of(self, slot: int) -> Sleeper:
        at = self._off + slot * self._SLOT_BYTES + self._LINE_4
        return Sleeper(*struct.unpack_from("<II", self._map, at + 4))

    def await_sleep(self, slot: int) -> int:
        """Waits until it begins to sleep anew: which of its sleeps that is."""
        until = time.monotonic() + WAIT_S
        before = self.of(slot).asleep
        while (now := self.of(slot).asleep) in (0, before):
            assert time.monotonic() < until, "it does not sleep"
            os.sched_yield()
        return now

    def sleep_s(self, slot: int, sleeps: int) -> float:
        """Returns how long so many sleeps take, while no process sends anything."""
        first = self.await_sleep(slot)
        at = time.monotonic()
        while self.await_sleep(slot) - first < sleeps:
            pass
        return time.monotonic() - at

    def close(self) -> None:
        self._map.close()


@pytest.fixture
def bells(fabric: Fabric) -> Iterator[Bells]:  # noqa: F811
    bells = Bells(fabric.path)
    yield bells
    bells.end()


@pytest.fixture
def slots(fabric: Fabric) -> Iterator[Slots]:  # noqa: F811
    slots = Slots(fabric.path)
    yield slots
    slots.close()


@pytest.fixture
def spawn_with(
    kernels: Kernels,
    nupa_dir: Path,
) -> Iterator[Callable[[str], Peer]]:
    """Makes peers whose NUPA_BELL is as given, by turns under two kernels."""
    peers: list[Peer] = []
    turns = itertools.cycle((0, 1))

    def make(bell: str) -> Peer:
        peers.append(kernels[next(turns)].peer())
        peers[-1].set_env(NUPA_DIR=str(nupa_dir), NUPA_BELL=bell)
        return peers[-1]

    yield make
    for peer in peers:
        peer.close()


@pytest.fixture
def spawn(bells: Bells, spawn_with: Callable[[str], Peer]) -> Callable[[], Peer]:
    return lambda: spawn_with(bells.path)


@pytest.fixture
def mover() -> None:
    """The one that is chosen."""


def slot_of(fabric: Fabric, peer: Peer) -> int:  # noqa: F811
    (slot,) = (slot.slot for slot in fabric.processes() if slot.pid == peer.pid)
    return slot


def wake_s(a: Peer, b: Peer, slots: Slots, sleeper: int) -> float:
    """Returns the time from a message to b, which has just begun to sleep, until b has it."""
    b.recv()
    waiting = b.begin("wait_asleep", 1)
    slots.await_sleep(sleeper)
    slots.await_sleep(sleeper)
    at = time.monotonic()
    a.post("send", 0, 0, 16)
    assert [done.byte_len for done in waiting.result()] == [16]
    took = time.monotonic() - at
    assert a.wait_asleep(1)[0].status == "SUCCESS"
    return took


def test_who_can_be_rung_sleeps_long_and_is_woken_at_once(
    fabric: Fabric,  # noqa: F811
    make_pair: MakePair,
    slots: Slots,
) -> None:
    pair = make_pair()
    a, b = slot_of(fabric, pair.a), slot_of(fabric, pair.b)
    assert slots.of(a).doorbell
    assert slots.of(b).doorbell
    assert slots.of(a).doorbell != slots.of(b).doorbell

    assert slots.sleep_s(b, 3) > 2 * LONG_S
    assert statistics.median(wake_s(pair.a, pair.b, slots, b) for _ in range(5)) < SOON_S


def test_who_comes_later_rings_and_is_rung(
    fabric: Fabric,  # noqa: F811
    make_pair: MakePair,
    slots: Slots,
    spawn: Callable[[], Peer],
) -> None:
    pair = make_pair()
    b = slot_of(fabric, pair.b)
    slots.await_sleep(b)
    third = spawn()
    third.attach(fabric.name, 2)
    third.register(1 << 20)
    address = third.make_qp()
    third.connect(pair.b.make_qp())
    pair.b.connect(address)

    assert statistics.median(wake_s(third, pair.b, slots, b) for _ in range(5)) < SOON_S


def test_among_those_who_cannot_ring_everybody_naps(
    fabric: Fabric,  # noqa: F811
    make_pair: MakePair,
    slots: Slots,
    spawn_with: Callable[[str], Peer],
) -> None:
    pair = make_pair()
    b = slot_of(fabric, pair.b)
    mute = spawn_with("")
    mute.attach(fabric.name, 2)
    assert slots.of(slot_of(fabric, mute)) == Sleeper(0, 0)

    assert slots.sleep_s(b, 20) < 15 * LONG_S
    # Its messages arrive all the same.
    region, address = mute.register(1 << 20), mute.make_qp()
    mute.connect(pair.b.make_qp())
    pair.b.connect(address)
    assert mute.stream_ops("write", 100, pair.b_region, 3) == (3, "SUCCESS")
    assert region.length == 1 << 20

    # As soon as it is known to be gone, the others sleep long.
    mute.close()
    until = time.monotonic() + WAIT_S
    while slots.sleep_s(b, 3) < 2 * LONG_S:
        assert time.monotonic() < until


def test_without_the_server_all_nap(
    fabric: Fabric,  # noqa: F811
    make_pair: MakePair,
    slots: Slots,
    bells: Bells,
) -> None:
    pair = make_pair()
    b = slot_of(fabric, pair.b)
    slots.await_sleep(b)

    bells.end()

    until = time.monotonic() + WAIT_S
    while slots.of(b).doorbell or slots.of(slot_of(fabric, pair.a)).doorbell:
        assert time.monotonic() < until, "it has not heard of the server's end"
        os.sched_yield()
    assert slots.sleep_s(b, 20) < 15 * LONG_S
    assert wake_s(pair.a, pair.b, slots, b) < WAIT_S


def test_a_message_is_there_even_if_its_ring_is_lost(
    fabric: Fabric,  # noqa: F811
    make_pair: MakePair,
) -> None:
    """A stream of messages to a process that sleeps in between arrives whole."""
    pair = make_pair()
    assert len(fabric.processes()) == 2
    for length in (16, 100_000):
        for _ in range(10):
            pair.b.recv()
            waiting = pair.b.begin("wait_asleep", 1)
            pair.a.post("send", 0, 0, length)
            assert [done.byte_len for done in waiting.result()] == [length]
            assert pair.a.wait_asleep(1)[0].status == "SUCCESS"


def number(value: int) -> bytes:
    return struct.pack("<q", value)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [(b"short", 0)],
        [(number(7), 0)],
        [(number(0), 0), (number(-3), 0)],
        [(number(0), 0), (number(70_000), 0), (number(-1), 1)],
        [(number(0), 0), (number(1), 0), (number(-1), 0)],
        # Another memory.
        [(number(0), 0), (number(1), 0), (number(-1), 1), (number(1), 1)],
        # A guest's doorbell, and this is none.
        [(bytes([1]) + b"nupbell", 2), (number(3), 0)],
        [(bytes([1]) + b"nupbell", 0), (number(3), 0)],
    ],
)
def test_a_server_that_says_nonsense_is_no_doorbell(
    fabric: Fabric,  # noqa: F811
    spawn_with: Callable[[str], Peer],
    slots: Slots,
    messages: list[tuple[bytes, int]],
) -> None:
    with tempfile.TemporaryDirectory(prefix="nupa-test-") as folder:
        path = f"{folder}/bell.sock"
        with doorbell.listen(path) as listener:
            peer = spawn_with(path)
            attaching = peer.begin("attach", fabric.name, 0)
            listener.settimeout(WAIT_S)
            connection, _ = listener.accept()
            with connection, Path("/dev/null").open() as file:
                for data, files in messages:
                    with suppress(BrokenPipeError):
                        socket.send_fds(connection, [data], [file.fileno()] * files)
            attaching.result()
    assert slots.of(slot_of(fabric, peer)).doorbell == 0
