# SPDX-License-Identifier: BSD-3-Clause
"""Links that go down and up, as `nupa port` does it, while work is under way; and the counters."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from nupa.fabric import Fabric
from nupa.topology.file import load
from tests.cross.conftest import SIZE, Pair
from tests.cross.peers.node import WAIT_S
from tests.cross.peers.peer import Peer
from tests.cross.peers.streams import WINDOW

MakePair = Callable[..., Pair]

# 4.096 us * 2^18 * 8: 8.6 s, far more than a port is down here.
PATIENT = {"timeout": 18, "retry_cnt": 7}
# 4.096 us * 2^8 * 2: 2.1 ms.
HASTY = {"timeout": 8, "retry_cnt": 1}


@pytest.fixture
def nupa_port(environment: dict[str, str]) -> Callable[[str, str], None]:
    """Runs `nupa port HOST down|up`."""

    def run(host: str, state: str) -> None:
        command = [sys.executable, "-P", "-m", "nupa.cli", "port", host, state]
        subprocess.run([*command, "--fabric", "cross"], env=environment, check=True, timeout=WAIT_S)

    return run


def until(what: Callable[[], bool]) -> None:
    """Looks again and again; fails past a deadline."""
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, "it did not come to pass"


def counters(fabric: Fabric, port: str) -> dict[str, int]:
    return next(p["counters"] for p in fabric.show()["ports"] if p["name"] == port)


def host_port(fabric: Fabric, host: int) -> str:
    return fabric.ports[fabric.hosts[host].port].name


def waits(fabric: Fabric, host: int) -> int:
    return counters(fabric, host_port(fabric, host))["port_xmit_wait"]


def grows(fabric: Fabric, host: int) -> Callable[[], bool]:
    before = waits(fabric, host)
    return lambda: waits(fabric, host) > before


@pytest.mark.parametrize("down", ["host0", "host1"])
@pytest.mark.parametrize("length", [64, 20_000])
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_messages_wait_for_the_port_and_none_is_lost_or_doubled(
    fabric: Fabric,
    make_pair: MakePair,
    nupa_port: Callable[[str, str], None],
    mover: str,
    length: int,
    down: str,
) -> None:
    pair = make_pair(mover=mover, path=PATIENT)
    pair.b.prepare_stream_in(length)
    receiving = pair.b.begin("stream_in", length, note_every=100)
    sending = pair.a.begin("stream_out", length)
    receiving.note()

    nupa_port(down, "down")
    until(lambda: waits(fabric, 0) > 0)
    nupa_port(down, "up")

    sending.stop()
    sent, status = sending.result()
    assert status == "SUCCESS"
    receiving.stop()
    received, status = receiving.result()
    assert status == "SUCCESS"
    # The rest has arrived, too: all sends were acknowledged.
    assert sent - WINDOW <= received <= sent
    assert pair.b.stream_in_rest(length, received, sent) == sent
    assert pair.b.poll() == []


@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_additions_wait_for_the_port_and_none_is_lost_or_doubled(
    fabric: Fabric, make_pair: MakePair, nupa_port: Callable[[str, str], None], mover: str
) -> None:
    pair = make_pair(mover=mover, path=PATIENT)
    adding = pair.a.begin("stream_ops", "faa", 8, pair.b_region, note_every=10)
    adding.note()

    for _ in range(2):
        wait_grows = grows(fabric, 0)
        nupa_port("host1", "down")
        until(wait_grows)
        nupa_port("host1", "up")

    adding.stop()
    added, status = adding.result()
    assert status == "SUCCESS"
    assert int.from_bytes(pair.b.load(0, 0, 8), "little") == added


@pytest.mark.parametrize("op", ["send", "write", "read", "faa"])
def test_past_the_timeout_work_fails_and_the_rest_is_flushed(
    fabric: Fabric, make_pair: MakePair, op: str
) -> None:
    pair = make_pair(path=HASTY)
    fabric.set_port("host1", False)

    for i in range(3):
        pair.a.post(op, 0, 0, 8, to=pair.b_region, wr_id=i)

    assert [(d.wr_id, d.status) for d in pair.a.wait(3)] == [
        (0, "RETRY_EXC_ERR"),
        (1, "WR_FLUSH_ERR"),
        (2, "WR_FLUSH_ERR"),
    ]
    assert pair.a.state() == "ERR"
    assert counters(fabric, host_port(fabric, 0))["port_xmit_discards"] == 1
    assert counters(fabric, host_port(fabric, 1))["link_downed"] == 1
    # The connection is made anew once the port is up.
    fabric.set_port("host1", True)
    for peer in (pair.a, pair.b):
        peer.destroy_qp()
    pair.a_address, pair.b_address = pair.a.make_qp(), pair.b.make_qp()
    pair.connect()
    pair.a.post("write", 0, 0, 8, to=pair.b_region)
    assert pair.a.wait()[0].status == "SUCCESS"


def test_work_does_not_fail_before_its_time(fabric: Fabric, make_pair: MakePair) -> None:
    # 4.096 us * 2^14 * 4: 268 ms.
    pair = make_pair(path={"timeout": 14, "retry_cnt": 3})
    fabric.set_port("host0", False)
    start = time.monotonic()

    pair.a.post("send", 0, 0, 8)

    assert pair.a.wait()[0].status == "RETRY_EXC_ERR"
    assert 0.268 <= time.monotonic() - start < 2


def test_with_timeout_zero_work_waits_for_ever(fabric: Fabric, make_pair: MakePair) -> None:
    pair = make_pair(path={"timeout": 0, "retry_cnt": 0})
    pair.b.recv()
    fabric.set_port("host0", False)
    pair.a.post("send", 0, 0, 8)
    until(lambda: waits(fabric, 0) > 0)
    assert pair.a.poll() == []

    fabric.set_port("host0", True)

    assert pair.a.wait()[0].status == "SUCCESS"
    assert pair.b.wait()[0].status == "SUCCESS"


@pytest.mark.parametrize("qp_type", ["uc", "ud"])
def test_unreliable_messages_are_lost_without_a_word(
    fabric: Fabric, make_pair: MakePair, qp_type: str
) -> None:
    pair = make_pair(qp_type)
    pair.b.recv()
    how: dict[str, Any] = {"peer": pair.b_address} if qp_type == "ud" else {}
    fabric.set_port("host1", False)
    pair.a.post("send", 0, 0, 1, **how)
    assert pair.a.wait()[0].status == "SUCCESS"
    fabric.set_port("host1", True)

    pair.a.post("send", 0, 0, 2, **how)

    assert pair.b.wait()[0].byte_len == (2 if qp_type == "uc" else 42)
    assert counters(fabric, host_port(fabric, 0))["port_xmit_discards"] == 1


def test_each_process_of_a_host_hears_of_its_port(
    fabric: Fabric, make_pair: MakePair, spawn: Callable[[], Peer]
) -> None:
    pair = make_pair()
    second = spawn()
    second.attach(fabric.name, 1)

    fabric.set_port("host1", False)
    assert (pair.b.event(), second.event()) == ("PORT_ERR", "PORT_ERR")
    assert pair.b.port_state() == "IBV_PORT_DOWN"
    fabric.set_port("host1", True)
    assert (pair.b.event(), second.event()) == ("PORT_ACTIVE", "PORT_ACTIVE")
    assert pair.b.port_state() == "IBV_PORT_ACTIVE"

    assert pair.b.no_event()
    assert pair.a.no_event()
    assert pair.a.port_state() == "IBV_PORT_ACTIVE"


# --- counters -----------------------------------------------------------------------------------

DATA = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")


@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
@pytest.mark.parametrize("far", [1, 23])
def test_traffic_shows_on_exactly_the_ports_of_its_route(
    spawn: Callable[[], Peer], far: int, mover: str
) -> None:
    with Fabric.create("cross", load("gpu24")) as fabric:
        near_peer, far_peer = spawn(), spawn()
        addresses, regions = [], []
        for peer, host in ((near_peer, 0), (far_peer, far)):
            peer.attach(fabric.name, host, mover)
            regions.append(peer.register(SIZE))
            addresses.append(peer.make_qp())
        near_peer.connect(addresses[1])
        far_peer.connect(addresses[0])

        assert near_peer.stream_ops("write", SIZE, regions[1], 4) == (4, "SUCCESS")

        there, back = fabric._segment.route(0, far), fabric._segment.route(far, 0)
        assert len(there) == (4 if far == 1 else 6)
        ports = fabric.show()["ports"]
        for index, port in enumerate(ports):
            found = port["counters"]
            words, packets = 4 * SIZE // 4, 4 * SIZE // 4096
            for path, way in ((there, 0), (back, 1)):
                for name, parity in (("xmit", 0), ("rcv", 1)):
                    on_it = index in path[parity::2]
                    data, count = found[f"port_{name}_data"], found[f"port_{name}_packets"]
                    if on_it and way == 0:
                        assert words <= data < words * 1.01, port["name"]
                        assert packets <= count < packets * 1.2, port["name"]
                    elif on_it:
                        assert data < words * 0.01, port["name"]
            if index not in there and index not in back:
                assert [found[name] for name in DATA] == [0, 0, 0, 0], port["name"]


def test_a_read_counts_from_the_host_that_has_the_data(
    fabric: Fabric, make_pair: MakePair, mover: str | None
) -> None:
    pair = make_pair(mover=mover)

    assert pair.a.stream_ops("read", SIZE, pair.b_region, 2) == (2, "SUCCESS")

    asker = counters(fabric, host_port(fabric, 0))
    owner = counters(fabric, host_port(fabric, 1))
    words = 2 * SIZE // 4
    assert words <= asker["port_rcv_data"] < words * 1.01
    assert words <= owner["port_xmit_data"] < words * 1.01
    assert asker["port_xmit_data"] < words * 0.01
    assert owner["port_rcv_data"] < words * 0.01


def test_counters_outlive_the_process_and_stay_with_its_host(
    fabric: Fabric, make_pair: MakePair, spawn: Callable[[], Peer]
) -> None:
    pair = make_pair()
    assert pair.a.stream_ops("write", SIZE, pair.b_region, 1) == (1, "SUCCESS")
    before = [counters(fabric, host_port(fabric, host)) for host in (0, 1)]
    pair.a.kill()
    # Else it still says goodbye, which is a packet.
    assert pair.b.event() == "QP_FATAL"
    pair.b.leave()
    assert fabric.processes() == []

    # The slots change hosts.
    for host in (1, 0):
        spawn().attach(fabric.name, host)

    after = [counters(fabric, host_port(fabric, host)) for host in (0, 1)]
    assert before[0]["port_xmit_data"] >= SIZE // 4
    assert after == before
