# SPDX-License-Identifier: BSD-3-Clause
"""The effect of each kind of fault on queue pairs, as their program sees it and as counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from nupa.fabric import Fabric, Faulty
from nupa.verbs import RecvWR, SendWR
from nupa.verbs import enums as e
from tests.unit.conftest import End, Pair
from tests.unit.fabric.fault_mixtures import wait_judged
from tests.unit.fabric.fault_traffic import HASTY, Unreliable

MakePair = Callable[..., Pair]
REQUESTS = {
    "write": e.IBV_WR_RDMA_WRITE,
    "read": e.IBV_WR_RDMA_READ,
    "add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
    "send": e.IBV_WR_SEND,
}
#: 4.096 us * 2^17 * 8: 4 s, more than anything here takes.
PATIENT = {"timeout": 17, "retry_cnt": 7}


@pytest.fixture
def rc(make_pair: MakePair) -> Pair:
    return make_pair(path=HASTY)


def request(pair: Pair, what: str, size: int = 8, wr_id: int = 1) -> SendWR:
    """Writes from a to the start of b's region."""
    wr = SendWR(wr_id, REQUESTS[what], sg=[pair.a.mr.sge(0, size)])
    if what == "add":
        wr.set_wr_atomic(pair.b.mr.rkey, pair.b.mr.buf, 1)
    elif what != "send":
        wr.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf)
    return wr


def counters(fabric: Fabric, host: int) -> dict[str, int]:
    return fabric.hw_counters()[host]


def total(fabric: Fabric, name: str) -> int:
    return counters(fabric, 0)[name] + counters(fabric, 1)[name]


@pytest.mark.parametrize("what", REQUESTS)
def test_a_request_that_is_dropped_is_sent_again(fabric: Fabric, rc: Pair, what: str) -> None:
    rc.b.qp.post_recv(RecvWR(7, sg=[rc.b.mr.sge()]))
    with Faulty(fabric.port("host0"), "drop", count=1) as faulty:
        rc.a.qp.post_send(request(rc, what))
        assert rc.a.wait_ok()[0].wr_id == 1
        assert faulty.hits == 1
    assert counters(fabric, 1)["fault_dropped"] == 1
    assert counters(fabric, 0)["local_ack_timeout_err"] >= 1


@pytest.mark.parametrize("what", REQUESTS)
def test_an_answer_that_is_dropped_is_given_again(fabric: Fabric, rc: Pair, what: str) -> None:
    rc.b.qp.post_recv([RecvWR(7, sg=[rc.b.mr.sge()]), RecvWR(8, sg=[rc.b.mr.sge()])])
    rc.b.mr.write(bytes(8))
    with Faulty(fabric.port("switch0/2"), "drop", after=1, count=1) as faulty:
        rc.a.qp.post_send(request(rc, what))
        assert rc.a.wait_ok()[0].wr_id == 1
        assert faulty.hits == 1
    assert counters(fabric, 0)["fault_dropped"] == 1
    assert counters(fabric, 1)["duplicate_request"] >= 1
    if what == "add":
        assert int.from_bytes(rc.b.mr.read(8), "little") == 1
    if what == "send":
        assert rc.b.wait_ok()[0].wr_id == 7
        assert rc.b.cq.poll() == (0, [])


def test_what_is_dropped_always_ends_the_queue_pair(fabric: Fabric, rc: Pair) -> None:
    with Faulty(fabric.port("host1"), "drop"):
        rc.a.qp.post_send(request(rc, "write"))
        assert rc.a.wait()[0].status is e.IBV_WC_RETRY_EXC_ERR
    assert rc.a.qp.query(e.IBV_QP_STATE)[0].qp_state is e.IBV_QPS_ERR


def test_a_gap_is_told_at_once(fabric: Fabric, make_pair: MakePair) -> None:
    pair = make_pair(path=PATIENT)
    pair.b.qp.post_recv([RecvWR(i, sg=[pair.b.mr.sge()]) for i in range(2)])
    start_s = time.monotonic()
    with Faulty(fabric.port("host0"), "drop", count=1):
        pair.a.qp.post_send([request(pair, "send", wr_id=i) for i in range(2)])
        pair.a.wait_ok(2)
    assert time.monotonic() - start_s < 0.25, "half of a timeout"
    assert counters(fabric, 0)["packet_seq_err"] == 1
    assert counters(fabric, 1)["rx_out_of_sequence"] == 1


def test_what_comes_twice_is_executed_once(fabric: Fabric, rc: Pair) -> None:
    rc.b.mr.write(bytes(8))
    with Faulty(fabric.port("host0"), "duplicate") as faulty:
        for n in range(5):
            rc.a.qp.post_send(request(rc, "add"))
            rc.a.wait_ok()
            assert int.from_bytes(rc.a.mr.read(8), "little") == n
        assert faulty.hits >= 5
    assert int.from_bytes(rc.b.mr.read(8), "little") == 5
    assert counters(fabric, 1)["duplicate_request"] == 5


def test_a_datagram_arrives_behind_the_next(fabric: Fabric, make_pair: MakePair) -> None:
    traffic = Unreliable(make_pair(e.IBV_QPT_UD, size=1 << 20), [8, 8, 8], 0)
    with Faulty(fabric.port("host0"), "reorder", count=1, duration=5) as faulty:
        traffic.send()
        wait_judged(faulty, 3)
    first, second, third = traffic.sent
    assert traffic.received() == [second, first, third]
    assert total(fabric, "fault_reordered") == 1


def test_a_datagram_arrives_twice(fabric: Fabric, make_pair: MakePair) -> None:
    traffic = Unreliable(make_pair(e.IBV_QPT_UD, size=1 << 20), [8, 8], 0)
    with Faulty(fabric.port("host0"), "duplicate", count=1) as faulty:
        traffic.send()
        wait_judged(faulty, 2)
    first, second = traffic.sent
    assert traffic.received() == [first, first, second]


@pytest.mark.parametrize("kind", ["delay", "corrupt"])
def test_what_is_late_takes_as_long(fabric: Fabric, make_pair: MakePair, kind: str) -> None:
    pair = make_pair(path=PATIENT)
    start_s = time.monotonic()
    with Faulty(fabric.port("host0"), kind, duration="30ms", count=1):
        pair.a.qp.post_send(request(pair, "write"))
        pair.a.wait_ok()
    assert time.monotonic() - start_s >= 0.03
    assert counters(fabric, 1)["link_retries" if kind == "corrupt" else "fault_delayed"] == 1


@pytest.mark.parametrize("what", REQUESTS)
def test_poison_is_a_remote_operation_error(fabric: Fabric, rc: Pair, what: str) -> None:
    rc.b.qp.post_recv(RecvWR(7, sg=[rc.b.mr.sge()]))
    rc.b.mr.write(b"untouched")
    rc.a.mr.write(b"poisoned")
    with Faulty(fabric.port("host1"), "poison", count=1) as faulty:
        rc.a.qp.post_send(request(rc, what))
        assert rc.a.wait()[0].status is e.IBV_WC_REM_OP_ERR
        assert faulty.hits == 1
    assert rc.b.mr.read(9) == b"untouched"
    assert total(fabric, "fault_poisoned") == 1


def test_a_poisoned_datagram_is_lost(fabric: Fabric, make_pair: MakePair) -> None:
    traffic = Unreliable(make_pair(e.IBV_QPT_UD, size=1 << 20), [8, 8, 8], 0)
    with Faulty(fabric.port("host0"), "poison", after=1, count=1) as faulty:
        traffic.send()
        wait_judged(faulty, 3)
    assert traffic.received() == [traffic.sent[0], traffic.sent[2]]


def event(end: End) -> str:
    with end.ctx.get_async_event(End.WAIT_S) as found:
        return found.event_type.name.removeprefix("IBV_EVENT_")


def test_a_flap_takes_the_link_down_and_up(fabric: Fabric, make_pair: MakePair) -> None:
    pair = make_pair(path=PATIENT)
    with fabric.pool.alloc(4096) as region, fabric.host("host0").map(region) as window:
        start_s = time.monotonic()
        with Faulty(fabric.port("host0"), "flap", duration="40ms"):
            pair.a.qp.post_send(request(pair, "write"))
            pair.a.wait_ok()
            took_s = time.monotonic() - start_s
        fabric.await_links()
        assert window.revoked
    assert (event(pair.a), event(pair.a)) == ("PORT_ERR", "PORT_ACTIVE")
    assert took_s >= 0.04
    assert total(fabric, "fault_flaps") == 1
    port = next(port for port in fabric.ports if port.name == "host0/1")
    assert (port.state, port.link_downed) == ("ACTIVE", 1)


def _queued_s() -> float:
    """Sums for how long threads of this process were ready to run and had no processor.

    proc_pid_schedstat: its second field, in ns.
    """
    threads = Path("/proc/self/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[1]) for thread in threads) / 1e9


@pytest.mark.parametrize("what", ["write", "read", "send"])
def test_a_bandwidth_is_kept(fabric: Fabric, make_pair: MakePair, what: str) -> None:
    size, rate = 4 << 20, 20_000_000
    pair = make_pair(path=PATIENT, size=size)
    data = Random(0).randbytes(size)
    source, target = (pair.b, pair.a) if what == "read" else (pair.a, pair.b)
    source.mr.write(data)
    pair.b.qp.post_recv([RecvWR(1, sg=[pair.b.mr.sge()])])
    wanted_s = size / rate
    with Faulty(fabric.port("host1"), "bandwidth", rate=rate):
        queued_s = _queued_s()
        start_s = time.monotonic()
        pair.a.qp.post_send(request(pair, what, size))
        pair.a.wait_ok()
        took_s = time.monotonic() - start_s
        # On a busy machine the link is idle while a thread that shall send has no processor.
        queued_s = _queued_s() - queued_s
    assert target.mr.read() == data
    assert took_s > wanted_s / 2
    assert took_s - queued_s < wanted_s * 2, f"{took_s} s, {queued_s} s of it without a processor"


@pytest.mark.parametrize("what", REQUESTS)
def test_completions_are_stuck_for_a_time(fabric: Fabric, rc: Pair, what: str) -> None:
    rc.b.qp.post_recv([RecvWR(i, sg=[rc.b.mr.sge()]) for i in range(3)])
    start_s = time.monotonic()
    with Faulty(fabric.port("host0"), "stuck", duration="50ms"):
        rc.a.qp.post_send([request(rc, what, wr_id=i) for i in range(3)])
        assert [wc.wr_id for wc in rc.a.wait_ok(3)] == [0, 1, 2]
    assert time.monotonic() - start_s >= 0.05
    assert total(fabric, "fault_stuck") == 1


def test_completions_are_stuck_until_the_fault_is_cleared(fabric: Fabric, rc: Pair) -> None:
    rc.b.qp.post_recv(RecvWR(7, sg=[rc.b.mr.sge()]))
    with Faulty(fabric.port("host0"), "stuck"):
        rc.a.qp.post_send(request(rc, "send"))
        assert rc.b.wait_ok()[0].wr_id == 7
        with pytest.raises(TimeoutError):
            rc.a.cq.wait(1, 0.05)
    assert rc.a.wait_ok()[0].wr_id == 1


def test_a_queue_pair_is_killed(fabric: Fabric, rc: Pair) -> None:
    rc.b.qp.post_recv(RecvWR(7, sg=[rc.b.mr.sge()]))
    with Faulty(fabric.port("host0"), "kill"):
        rc.a.qp.post_send(request(rc, "send"))
        assert event(rc.b) == "QP_FATAL"
        assert rc.b.wait()[0].status is e.IBV_WC_WR_FLUSH_ERR
        assert rc.a.wait()[0].status is not e.IBV_WC_SUCCESS
    assert rc.b.qp.query(e.IBV_QP_STATE)[0].qp_state is e.IBV_QPS_ERR
    assert total(fabric, "fault_killed") == 1


def test_a_fault_ends_by_itself(fabric: Fabric, rc: Pair) -> None:
    with Faulty(fabric.port("host0"), "drop", for_="20ms") as faulty:
        until = time.monotonic() + End.WAIT_S
        while not faulty.entries[0].ended:
            assert time.monotonic() < until
        assert faulty.entries[0].left == "ended"
        rc.a.qp.post_send(request(rc, "write"))
        rc.a.wait_ok()
        assert faulty.hits == 0


def test_a_fault_may_last_for_centuries(fabric: Fabric, rc: Pair) -> None:
    with Faulty(fabric.port("host0"), "delay", for_="18446744073s", duration="1ms") as faulty:
        rc.a.qp.post_send(request(rc, "write"))
        rc.a.wait_ok()
        (entry,) = faulty.entries
    assert not entry.ended
    assert entry.hits > 0


def test_only_what_passes_the_port_is_judged(fabric: Fabric, make_end: Callable[..., End]) -> None:
    from nupa.verbs import connect

    one, two = make_end(0), make_end(0)
    connect(one.qp, two.qp, **HASTY)
    with Faulty(fabric.port("host0"), "drop") as faulty:
        one.qp.post_send(request(Pair(one, two), "write"))
        one.wait_ok()
        assert faulty.seen == 0
