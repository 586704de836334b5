# SPDX-License-Identifier: BSD-3-Clause
"""Events: read, followed, posted by several processes and threads."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from threading import Thread

import pytest

from nupa.fabric import EventSeverity, Fabric, LocalError
from tests.unit.child import failure_in_child


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(hosts=2) as fabric:
        yield fabric


def test_what_changed_is_an_event(fabric: Fabric) -> None:
    red = fabric.tenants.add("red")
    red.set(rate="1GB/s")
    red.assign("host0")
    lan = fabric.partitions.add("lan", tenant=red)
    lan.join("host0")
    lan.join("host0", "limited")
    lan.set(rate="1MB/s")
    lan.leave("host0")
    fabric.set_host_state("host1", "draining")
    fabric.set_port("host0", False)
    fabric.set_port("host0", True)
    fabric.tenants.remove("red", force=True)
    events = fabric.events.read()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [(event.kind, event.subject) for event in events] == [
        ("tenant.added", "red"),
        ("rate.changed", "red"),
        ("tenant.assigned", "host0"),
        ("partition.added", "lan"),
        ("member.added", "lan"),
        ("member.changed", "lan"),
        ("rate.changed", "lan"),
        ("member.removed", "lan"),
        ("host.state", "host1"),
        ("port.down", "switch0/1"),
        ("port.down", "host0/1"),
        ("port.up", "switch0/1"),
        ("port.up", "host0/1"),
        ("partition.removed", "lan"),
        ("tenant.released", "host0"),
        ("tenant.removed", "red"),
    ]
    assert {e.kind for e in events if e.severity is EventSeverity.WARNING} == {"port.down"}
    assert abs(events[-1].time_ns - time.time_ns()) < 60 * 10**9


def test_a_refused_change_is_none(fabric: Fabric) -> None:
    fabric.tenants.add("red")
    for _ in range(3):
        with pytest.raises(LocalError):
            fabric.tenants.add("red")
    fabric.set_port("host0", True)  # as it is
    assert fabric.events.last == 1


def test_posted_events_come_after_a_number(fabric: Fabric) -> None:
    assert (fabric.events.last, fabric.events.read()) == (0, [])
    assert fabric.events.post("test", "a", "text", "critical") == 1
    assert fabric.events.post("x" * 99, "\0\n", "ä" * 99) == 2
    one, two = fabric.events.read()
    assert (one.kind, one.subject, one.text, one.severity) == ("test", "a", "text", "critical")
    assert two.kind == "x" * 23
    assert two.text.startswith("ä" * 60)
    assert "\n" not in two.subject
    assert fabric.events.read(1) == [two]
    assert fabric.events.read(2) == fabric.events.read(99) == []
    with pytest.raises(LocalError, match="no severity") as refused:
        fabric.events.post("test", "a", "text", "fatal")
    assert refused.value.errno == errno.EINVAL


def test_the_newest_are_kept(fabric: Fabric) -> None:
    room = fabric.events.room
    for i in range(room + 3):
        fabric.events.post("test", str(i))
    events = fabric.events.read()
    assert [event.subject for event in events] == [str(i) for i in range(3, room + 3)]
    assert [event.subject for event in fabric.events.read(room + 1)] == [
        str(room + 1),
        str(room + 2),
    ]


def test_events_are_followed(fabric: Fabric) -> None:
    fabric.events.post("test", "before")
    poster = Thread(target=lambda: [fabric.events.post("test", str(i)) for i in range(100)])
    first = fabric.events.follow(after=0, timeout=60)
    assert next(first).subject == "before"
    poster.start()
    assert [next(first).subject for _ in range(100)] == [str(i) for i in range(100)]
    poster.join()
    assert list(fabric.events.follow(timeout=0.001)) == []
    assert len(list(fabric.events.follow(after=0, timeout=0.001))) == 101
    later = fabric.events.follow(timeout=60)
    fabric.events.post("test", "later")
    assert next(later).subject == "later"


@pytest.mark.usefixtures("folder")
def test_another_process_posts_and_reads() -> None:
    from nupa.topology.topology import star

    with Fabric.create("events", star(2)) as fabric:
        fabric.events.post("test", "parent")

        def post() -> None:
            with Fabric.open("events") as own:
                assert [event.subject for event in own.events.read()] == ["parent"]
                own.tenants.add("red")

        assert failure_in_child(post) == ""
        assert [event.subject for event in fabric.events.read()] == ["parent", "red"]
        assert [tenant.name for tenant in fabric.tenants] == ["red"]
    Fabric.remove("events")
