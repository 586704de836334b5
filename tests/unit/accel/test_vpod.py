# SPDX-License-Identifier: BSD-3-Clause
"""Virtual pods of UALink: the switch has no route from one to another."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from nupa.accel.requests import Operation, Request, Status
from nupa.accel.ualink import Pod
from nupa.base.errors import LocalError, RemoteError
from nupa.memory import Atomic

MEMORY = 4096


class Controller:
    """A controller of a test: the virtual pod of each accelerator."""

    def __init__(self, vpods: dict[int, str]) -> None:
        self.vpods = vpods
        self.admitted: dict[int, Mapping[str, str]] = {}

    def admit(self, number: int, identity: Mapping[str, str]) -> None:
        if identity.get("vendor") == "unknown":
            raise LocalError(f"accelerator {number}: refused")
        self.admitted[number] = identity

    def reaches(self, source: int, destination: int) -> bool:
        return self.vpods.get(source) == self.vpods.get(destination)

    def left(self, number: int) -> None:
        del self.admitted[number]


def test_requests_reach_accelerators_of_the_same_virtual_pod_only() -> None:
    pod = Pod(random=Random(7), controller=Controller({1: "a", 2: "a", 3: "b"}))
    memories = {number: bytearray(MEMORY) for number in (1, 2, 3, 4)}
    one, two, three, four = (pod.attach(number, memory) for number, memory in memories.items())
    one.window(two).write(100, b"inside")
    assert one.window(two).read(100, 6) == b"inside"
    for source, peer in ((one, three), (three, one), (one, four), (four, three)):
        window = source.window(peer)
        for use in (
            lambda window=window: window.read(0, 8),
            lambda window=window: window.write(0, b"outside"),
            lambda window=window: window.atomic(Atomic.FETCH_ADD, 0, 1),
        ):
            with pytest.raises(RemoteError, match="no such accelerator"):
                use()
    assert memories[3] == memories[4] == memories[1] == bytearray(MEMORY)


def test_the_response_has_the_status_of_an_accelerator_that_is_not_there() -> None:
    pod = Pod(controller=Controller({1: "a", 2: "b"}))
    one, _ = pod.attach(1, bytearray(MEMORY)), pod.attach(2, bytearray(MEMORY))
    answers = []
    for destination in (2, 9):
        one.send(Request(Operation.READ, 1, destination, 5, 0, 64))
        answers.append(one.response(5)[1:])
    assert answers[0] == answers[1] == (5, Status.NO_ACCELERATOR, b"")


def test_a_change_acts_on_requests_that_are_queued() -> None:
    controller = Controller({1: "a", 2: "a"})
    pod, memory = Pod(controller=controller), bytearray(MEMORY)
    window = pod.attach(1, bytearray(MEMORY)).window(pod.attach(2, memory), posted=True)
    window.write(0, b"late")
    controller.vpods[2] = "b"
    with pytest.raises(RemoteError, match="no such accelerator"):
        window.flush()
    assert memory == bytearray(MEMORY)
    controller.vpods[2] = "a"
    window.write(0, b"back")
    window.flush()
    assert memory[:4] == b"back"


def test_an_accelerator_that_is_refused_is_not_attached() -> None:
    controller = Controller({})
    pod = Pod(controller=controller)
    with pytest.raises(LocalError, match="accelerator 1: refused"):
        pod.attach(1, bytearray(MEMORY), identity={"vendor": "unknown"})
    assert pod.routes == controller.admitted == {}
    with pytest.raises(LocalError, match="multiple of 64"):
        pod.attach(1, bytearray(63), identity={"vendor": "acme"})
    assert controller.admitted == {}
    pod.attach(1, bytearray(MEMORY), identity={"vendor": "acme"})
    assert controller.admitted == {1: {"vendor": "acme"}}
    pod.detach(1)
    assert controller.admitted == {}
