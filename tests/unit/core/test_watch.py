# SPDX-License-Identifier: BSD-3-Clause
"""Watches: packets of a fabric in this process, naps, limits, refusals."""

from __future__ import annotations

import errno
from contextlib import ExitStack
from typing import Any

import pytest

from nupa.core.watch import Naps, Watch, WatchPacket, ports_of
from nupa.fabric import Fabric, FabricError, LocalError
from nupa.packet.decode import fast
from nupa.packet.tables.opcodes import NAMES
from nupa.packet.tables.record import Direction, Kind, Level
from nupa.verbs import SGE, RecvWR, SendWR
from nupa.verbs import enums as e
from tests.unit.conftest import Pair

DEADLINE_S = 10.0


def send(pair: Pair, size: int = 64, count: int = 1) -> None:
    for i in range(count):
        pair.b.qp.post_recv(RecvWR(i, sg=[SGE(pair.b.mr.buf, size, pair.b.mr.lkey)]))
        sge = SGE(pair.a.mr.buf, size, pair.a.mr.lkey)
        pair.a.qp.post_send(SendWR(i, sg=[sge], opcode=e.IBV_WR_SEND))
        pair.a.wait_ok()
        pair.b.wait_ok()


def packets_of(watch: Watch, count: int) -> list[WatchPacket]:
    found: list[WatchPacket] = []
    while len(found) < count:
        more = watch.wait(DEADLINE_S)
        assert more, f"{len(found)} packets came of {count}: {watch.counts}"
        found += more
    return found


def opcodes(packets: list[WatchPacket]) -> list[str]:
    codes = [fast.decode(packet.data, [(0, len(packet.data))]).opcode[0] for packet in packets]
    return [NAMES[code] for code in codes]


def test_a_send_and_its_acknowledgement_are_packets(fabric: Fabric, pair: Pair) -> None:
    with Watch(fabric) as watch:
        send(pair)
        sent, answer = packets_of(watch, 2)
        assert watch.counts.packets == 2
        assert watch.counts.lost == watch.counts.invalid == 0
    assert opcodes([sent, answer]) == ["RC_SEND_ONLY", "RC_ACKNOWLEDGE"]
    assert (sent.host, answer.host) == (0, 1)
    assert sent.transfer == answer.transfer != 0
    assert (sent.sequence, answer.sequence) == (0, 1)
    assert sent.ts_ns <= answer.ts_ns
    for packet in (sent, answer):
        assert packet.level == Level.TRANSPORT
        assert packet.kind == Kind.ETHERNET
        assert packet.direction == Direction.OUTBOUND
        assert packet.original_bytes == len(packet.data)
        assert packet.port == fabric.hosts[packet.host].port


def test_nothing_is_there_of_what_happened_before(fabric: Fabric, pair: Pair) -> None:
    send(pair)
    with Watch(fabric) as watch:
        assert watch.read() == []
        assert watch.counts == (0, 0, 0, 0)


def test_a_snap_length_cuts_packets(fabric: Fabric, pair: Pair) -> None:
    with Watch(fabric, snap_bytes=60) as watch:
        send(pair, size=1000)
        sent, _ = packets_of(watch, 2)
    assert len(sent.data) == 60
    assert sent.original_bytes > 1000


def test_a_port_that_is_watched_sees_both_directions(fabric: Fabric, pair: Pair) -> None:
    with Watch(fabric, ports=ports_of(fabric, ["host1"])) as watch:
        send(pair)
        sent, answer = packets_of(watch, 2)
    port = fabric.host("host1").port
    assert (sent.port, sent.direction) == (port, Direction.INBOUND)
    assert (answer.port, answer.direction) == (port, Direction.OUTBOUND)


def test_watches_do_not_disturb_one_another(fabric: Fabric, pair: Pair) -> None:
    with Watch(fabric) as first:
        send(pair)
        with Watch(fabric) as second:
            send(pair)
            assert len(packets_of(second, 2)) == 2
        send(pair)
        assert len(packets_of(first, 6)) == 6


def test_what_was_recorded_can_be_read_after_the_stop(fabric: Fabric, pair: Pair) -> None:
    with Watch(fabric) as watch:
        send(pair)
        watch.stop()
        send(pair)
        assert opcodes(packets_of(watch, 2))[:2] == ["RC_SEND_ONLY", "RC_ACKNOWLEDGE"]
        assert watch.read() == []


def test_a_watch_that_is_too_slow_counts_what_it_lost(fabric: Fabric, pair: Pair) -> None:
    """A ring has 4 MiB; eight rings' worth of records passes."""
    with Watch(fabric) as watch:
        send(pair, size=1 << 16, count=512)
        while watch.wait(0.05):
            pass
        counts = watch.counts
    assert counts.lost > 0
    assert counts.invalid == 0
    assert counts.lost + counts.records >= 512


def test_there_is_a_limit_of_watches(fabric: Fabric) -> None:
    with ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(Watch(fabric))
        with pytest.raises(FabricError, match="64") as caught:
            Watch(fabric)
        assert caught.value.errno == errno.EUSERS
    with Watch(fabric) as watch:  # they were given back
        assert watch.read() == []


def test_a_closed_watch_says_so(fabric: Fabric) -> None:
    watch = Watch(fabric)
    watch.close()
    watch.close()
    with pytest.raises(LocalError, match="the watch is closed"):
        watch.read()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"levels": []}, "name a level"),
        ({"levels": ["tpl"]}, "did you mean tlp"),
        ({"snap_bytes": -1}, "lengths have 32 bits"),
        ({"snap_bytes": 1 << 32}, "lengths have 32 bits"),
        ({"ports": [4]}, "there is no port 4: ports are 0 to 3"),
        ({"ports": [-1]}, "there is no port -1"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    fabric: Fabric, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(LocalError, match=why):
        Watch(fabric, **options)


def test_places_are_hosts_ports_and_links(fabric: Fabric) -> None:
    assert ports_of(fabric, ["any"]) == ports_of(fabric, ["host0", "any"]) == ()
    assert ports_of(fabric, ["host0"]) == ports_of(fabric, ["host0/1", "0"]) == (0,)
    assert ports_of(fabric, ["host1", "switch0/1"]) == (1, 2)
    with pytest.raises(LocalError, match="no port, host or link is named 'host7'"):
        ports_of(fabric, ["host7"])


def test_naps_grow_to_20_ms_and_begin_anew_when_something_came() -> None:
    slept: list[float] = []
    naps = Naps(clock=lambda: sum(slept), sleep=slept.append)
    for _ in range(20):
        assert naps.nap()
    assert slept[0] == 0
    assert slept == sorted(slept)
    assert max(slept) == 0.02
    naps.found()
    naps.nap()
    assert slept[-1] == 0


def test_naps_end_at_their_deadline() -> None:
    slept: list[float] = []
    naps = Naps(clock=lambda: sum(slept), sleep=slept.append)
    while naps.nap(deadline=1.0):
        pass
    assert sum(slept) == pytest.approx(1.0)


def test_waiting_ends_at_its_deadline(fabric: Fabric) -> None:
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    with Watch(fabric) as watch:
        assert watch.wait(30.0, Naps(lambda: now_s, sleep)) == []
    assert now_s == pytest.approx(30.0)
