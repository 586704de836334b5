# SPDX-License-Identifier: BSD-3-Clause
"""UALink: requests, their answers, and the orders in which they may be done."""

from __future__ import annotations

import os
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.accel.local import BufferWindow
from nupa.accel.requests import (
    ACCELERATORS,
    TAGS,
    Operation,
    Request,
    RequestError,
    Response,
    Status,
)
from nupa.accel.ualink import Accelerator, Pod
from nupa.base.errors import LocalError, RemoteError
from nupa.memory import Atomic, atomic_fetch_add
from nupa.memory.access import Bytes
from nupa.memory.window import Window

MEMORY = 4096
READ, WRITE, ATOMIC = Operation


def pair(seed: int | None = None) -> tuple[Pod, Accelerator, Accelerator]:
    pod = Pod(random=None if seed is None else Random(seed))
    return pod, pod.attach(1, bytearray(MEMORY)), pod.attach(2, bytearray(MEMORY))


@pytest.mark.parametrize("size", [64, 128, 192, 256])
def test_requests_have_one_to_four_beats_that_end_where_256_bytes_do(size: int) -> None:
    request = Request(READ, 1, 2, 0, 512 - size, size)
    assert request.block == 1
    if size > 64:
        with pytest.raises(RequestError, match="crosses a multiple of 256"):
            Request(READ, 1, 2, 0, 512 - size + 64, size)


@pytest.mark.parametrize(
    ("request_of", "message"),
    [
        ({"address": 32}, "multiple of 64"),
        ({"size": 0}, "64, 128, 192 or 256"),
        ({"size": 320}, "64, 128, 192 or 256"),
        ({"size": 32}, "64, 128, 192 or 256"),
        ({"address": 1 << 57}, "address"),
        ({"source": ACCELERATORS}, "source"),
        ({"destination": -1}, "destination"),
        ({"tag": TAGS}, "tag"),
        ({"data": bytes(64)}, "64 bytes of data"),
        ({"command": WRITE, "data": bytes(63)}, "63 bytes of data"),
        ({"command": WRITE, "data": bytes(64), "enables": 1 << 64}, "enables"),
        ({"command": ATOMIC, "data": bytes(64), "enables": 0xFF << 4}, "aligned word"),
        ({"command": ATOMIC, "data": bytes(64), "enables": 0xFFFF}, "aligned word"),
    ],
)
def test_a_request_that_ualink_has_not_is_refused(
    request_of: dict[str, object], message: str
) -> None:
    usual = {"command": READ, "source": 1, "destination": 2, "tag": 0, "address": 0, "size": 64}
    with pytest.raises(RequestError, match=message):
        Request(**(usual | request_of))  # type: ignore[arg-type]


@settings(max_examples=50, derandomize=True)
@given(st.integers(0, (1 << 256) - 1))
def test_a_write_changes_the_bytes_that_it_enables(enables: int) -> None:
    memory = bytearray(b"-" * 256)
    pod = Pod()
    one, _ = pod.attach(1, bytearray(64)), pod.attach(2, memory)
    one.send(Request(WRITE, 1, 2, 0, 0, 256, b"+" * 256, enables))
    assert one.response(0) == Response(2, 0, Status.OKAY)
    assert memory == bytes(ord("-+"[enables >> at & 1]) for at in range(256))


class Recorder(BufferWindow):
    """Memory that records writes in their order."""

    def __init__(self) -> None:
        super().__init__(bytearray(MEMORY))
        self.log: list[tuple[int, bytes]] = []

    def write(self, offset: int, data: Bytes) -> None:
        super().write(offset, data)
        self.log.append((offset, bytes(data)))


#: Source, block, and place in the block: several write the same bytes.
SENT = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)), max_size=40)


def run(sent: list[tuple[int, int, int]], seed: int | None) -> list[tuple[int, bytes]]:
    """Records writes in their order; the data are the source and the request's number."""
    recorder = Recorder()
    pod = Pod(random=None if seed is None else Random(seed))
    pod.attach(0, recorder)
    sources = {number: pod.attach(number, bytearray(64)) for number in (1, 2, 3)}
    for number, (source, block, beat) in enumerate(sent):
        data = bytes([source, number]) * 32
        at = block * 256 + beat * 64
        tag = sources[source].tag()
        sources[source].send(Request(WRITE, source, 0, tag, at, 64, data, (1 << 64) - 1))
    pod.drain()
    assert pod.done == len(sent)
    return recorder.log


@settings(max_examples=50, derandomize=True)
@given(SENT, st.integers(0, 1000))
def test_order_holds_inside_of_256_bytes_and_is_the_same_for_the_same_seed(
    sent: list[tuple[int, int, int]], seed: int
) -> None:
    log = run(sent, seed)
    assert log == run(sent, seed)
    assert len(log) == len(sent)
    queues = defaultdict(list)
    for at, data in log:
        queues[data[0], at // 256].append(data[1])
    for order in queues.values():
        assert order == sorted(order)


def test_without_a_random_source_requests_are_done_as_they_were_sent() -> None:
    sent = [(1 + i % 3, i * 7 % 4, i % 4) for i in range(40)]
    assert [data[1] for _, data in run(sent, None)] == list(range(40))


def test_requests_to_different_blocks_are_done_in_each_order_by_some_seed() -> None:
    orders = {
        tuple(data[1] for _, data in run([(1, 0, 0), (1, 1, 0), (1, 0, 1)], seed))
        for seed in range(30)
    }
    assert orders == {(0, 1, 2), (0, 2, 1), (1, 0, 2)}


def seen(seed: int, *, flush: bool) -> bytes:
    """Returns a reader's view once it sees a flag that was written after the data, in other 256
    B."""
    _, one, two = pair(seed)
    with one.window(two, posted=True) as window, two.window(two) as own:
        window.write(0, b"new!")
        if flush:
            window.flush()
        window.write(512, b"\1")
        while own.read(512, 1) != b"\1":
            pass
        return two.memory.read(0, 4)


def test_a_flag_overtakes_its_data_for_some_seed_unless_they_are_flushed_first() -> None:
    without = [seen(seed, flush=False) for seed in range(20)]
    assert set(without) == {b"new!", bytes(4)}
    assert without == [seen(seed, flush=False) for seed in range(20)]
    assert {seen(seed, flush=True) for seed in range(20)} == {b"new!"}


def test_a_tag_is_one_requests_until_its_response_is_taken() -> None:
    _, one, _ = pair()
    request = Request(READ, 1, 2, 7, 0, 64)
    one.send(request)
    with pytest.raises(RequestError, match="in use"):
        one.send(request)
    assert one.response(7).data == bytes(64)
    with pytest.raises(RequestError, match="waits for no response"):
        one.response(7)
    one.send(request)
    assert one.response(7).status is Status.OKAY
    tags = set()
    for _ in range(TAGS):
        tag = one.tag()
        one.send(Request(READ, 1, 2, tag, 0, 64))
        tags.add(tag)
    assert tags == set(range(TAGS))


def test_tags_run_out_when_nobody_takes_responses_and_windows_never_run_out() -> None:
    _, one, two = pair(seed=1)
    with one.window(two, posted=True) as window:
        for i in range(TAGS + 100):
            window.write(i % 16 * 256, bytes([i & 0xFF]))
    for _ in range(TAGS):
        one.send(Request(READ, 1, 2, one.tag(), 0, 64))
    with pytest.raises(RequestError, match="all 2048 tags"):
        one.tag()


def test_who_is_not_there_is_said_by_the_response() -> None:
    pod, one, two = pair()
    window = one.window(two, posted=True)
    for destination, address, status in (
        (9, 0, Status.NO_ACCELERATOR),
        (2, MEMORY - 64, Status.OKAY),
        (2, MEMORY, Status.NO_ADDRESS),
    ):
        one.send(Request(READ, 1, destination, 0, address, 64))
        assert one.response(0).status is status
    window.write(0, b"late")
    pod.detach(2)
    assert window.revoked
    with pytest.raises(RemoteError, match="taken away"):
        window.read(0, 1)
    with pytest.raises(RemoteError, match="no such accelerator"):
        window.close()
    with pytest.raises(RequestError, match="not attached"):
        two.send(Request(READ, 2, 1, 0, 0, 64))


def test_the_requests_of_who_is_detached_vanish() -> None:
    pod, one, two = pair(seed=2)
    window = one.window(two, posted=True)
    window.write(0, bytes(range(200)) * 10)
    pod.detach(1)
    assert not pod.step()
    assert two.memory.read(0, MEMORY) == bytes(MEMORY)
    with pytest.raises(RemoteError, match="detached"):
        window.close()


def test_who_was_detached_is_not_who_has_its_number_now() -> None:
    pod, one, two = pair()
    window, request = one.window(two), Request(READ, 1, 2, 0, 0, 64)
    pod.detach(1)
    assert one not in pod
    assert pod.attach(1, bytearray(64)) in pod
    with pytest.raises(RequestError, match="not attached"):
        one.send(request)
    with pytest.raises(RemoteError, match="taken away"):
        window.write(0, b"x")
    assert not pod.step()


def test_memory_that_its_owner_closed_is_lost() -> None:
    pod, one, two = pair()
    window = one.window(two, posted=True)
    window.write(0, b"late")
    two.memory.close()
    with pytest.raises(RemoteError, match="memory is gone"):
        window.flush()
    with pytest.raises(RemoteError, match="memory is gone"):
        window.read(0, 4)
    assert not pod.step()


def test_memory_that_its_owner_resized_is_lost() -> None:
    pod, memory = Pod(), bytearray(MEMORY)
    one, two = pod.attach(1, bytearray(64)), pod.attach(2, memory)
    with one.window(two) as window:
        del memory[64:]
        for use in (lambda: window.read(0, 64), lambda: window.write(0, b"x")):
            with pytest.raises(RemoteError, match="memory is gone"):
                use()


def test_ports_and_numbers_are_given_once() -> None:
    pod = Pod(ports=2)
    pod.attach(1023, bytearray(64), port=1)
    for number, memory, port in (
        (1023, 64, None),
        (ACCELERATORS, 64, None),
        (1, 64, 1),
        (1, 64, 2),
        (1, 63, None),
        (1, 0, None),
    ):
        with pytest.raises(LocalError):
            pod.attach(number, bytearray(memory), port=port)
    pod.attach(0, bytearray(64))
    assert pod.routes == {1023: 1, 0: 0}
    with pytest.raises(LocalError, match="2 of 2 are taken"):
        pod.attach(1, bytearray(64))
    pod.detach(0)
    assert pod.attach(1, bytearray(64)) in pod
    assert pod.routes == {1023: 1, 1: 0}


def test_an_atomic_takes_one_beat_and_returns_what_was() -> None:
    pod, one, two = pair()
    two.memory.write(72, (40).to_bytes(8, "little"))
    data = bytes(8) + (2).to_bytes(8, "little") + bytes(48)
    one.send(Request(ATOMIC, 1, 2, 5, 64, 64, data, 0xFF00, Atomic.FETCH_ADD))
    assert one.response(5) == Response(2, 5, Status.OKAY, (40).to_bytes(8, "little"))
    assert two.memory.read(72, 8)[0] == 42
    assert pod.done == 1


def test_memory_that_is_lost_is_said_by_the_response() -> None:
    fd = os.memfd_create("lost")
    os.ftruncate(fd, MEMORY)
    with Window.of_pieces(fd, [0], MEMORY, on_loss="raise") as memory:
        os.close(fd)
        pod = Pod()
        one, two = pod.attach(1, bytearray(64)), pod.attach(2, memory)
        window = one.window(two)
        window.write(0, b"kept")
        assert window.read(0, 4) == b"kept"
        memory.revoke()
        for command, size in ((READ, 0), (WRITE, 64), (ATOMIC, 64)):
            one.send(Request(command, 1, 2, 3, 0, 64, bytes(size), 0xFF if size else 0))
            assert one.response(3).status is Status.LOST
        with pytest.raises(RemoteError, match="taken away"):
            window.read(0, 4)


def test_threads_of_several_accelerators_lose_no_sum() -> None:
    pod = Pod(random=Random(5))
    target = pod.attach(0, bytearray(64))

    def add(number: int) -> int:
        with pod.attach(number, bytearray(64)).window(target) as window:
            return sum(atomic_fetch_add(window, 8, 1) for _ in range(100))

    with ThreadPoolExecutor(4) as threads:
        seen = sum(threads.map(add, range(1, 5)))
    assert target.memory.read(8, 8) == (400).to_bytes(8, "little")
    assert seen == sum(range(400))
