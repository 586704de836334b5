# SPDX-License-Identifier: BSD-3-Clause
"""A host that is removed under traffic: its queue pairs are in error within 100 ms."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from nupa.fabric import Fabric
from nupa.fabric.tenants.onboarding import add_host, remove_host
from nupa.topology.file import load
from nupa.verbs import CQ, MR, PD, QP, Context, QPCap, QPInitAttr, RecvWR, SendWR, connect
from nupa.verbs import enums as e

_ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
#: Of a removal; the best of several is taken, as others compute on this machine.
LIMIT_S = 0.1
TRIES = 5
_WAIT_S = 20.0


class End:
    """A queue pair on a host, with memory."""

    def __init__(self, fabric: Fabric, host: str) -> None:
        self.context = Context(fabric=fabric, host=host)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.mr = MR(self.pd, 4096, _ACCESS)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(64, 64, 1, 1))
        self.qp = QP(self.pd, init)

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(topology=load("tenants")) as fabric:
        yield fabric


def await_so(is_so: Callable[[], bool]) -> float:
    """Returns the seconds that passed."""
    start = time.monotonic()
    while not is_so():
        assert time.monotonic() - start < _WAIT_S
    return time.monotonic() - start


def exchange(a: End, b: End) -> None:
    b.qp.post_recv(RecvWR(1, sg=[b.mr.sge()]))
    a.qp.post_send(SendWR(2, sg=[a.mr.sge(0, 8)]))
    assert b.cq.wait(1, timeout=_WAIT_S)[0].status == e.IBV_WC_SUCCESS
    assert a.cq.wait(1, timeout=_WAIT_S)[0].status == e.IBV_WC_SUCCESS


def test_queue_pairs_of_a_host_that_is_removed_are_in_error_within_100_ms(fabric: Fabric) -> None:
    passed = []
    for _ in range(TRIES):
        add_host(fabric, "host4")
        stays, goes = End(fabric, "host2"), End(fabric, "host4")
        connect(stays.qp, goes.qp)
        exchange(stays, goes)
        remove_host(fabric, "host4")
        passed.append(await_so(lambda: goes.qp.qp_state is e.IBV_QPS_ERR))  # noqa: B023
        goes.close()
        stays.close()
    print(f"in error after {', '.join(f'{1000 * each:.1f}' for each in passed)} ms")
    assert min(passed) < LIMIT_S


def test_others_are_not_disturbed_and_the_host_comes_back(fabric: Fabric) -> None:
    one, two = End(fabric, "host2"), End(fabric, "host3")
    connect(one.qp, two.qp)
    for _ in range(3):
        add_host(fabric, "host4")
        newcomer, peer = End(fabric, "host4"), End(fabric, "host2")
        connect(newcomer.qp, peer.qp)
        exchange(newcomer, peer)
        exchange(one, two)
        remove_host(fabric, "host4")
        await_so(lambda: newcomer.qp.qp_state is e.IBV_QPS_ERR)  # noqa: B023
        newcomer.close()
        peer.close()
    exchange(one, two)
    assert one.qp.qp_state is two.qp.qp_state is e.IBV_QPS_RTS
    one.close()
    two.close()


def test_a_program_of_a_host_that_is_removed_gets_the_error_of_its_port(fabric: Fabric) -> None:
    with Context(fabric=fabric, host="host3") as context:
        remove_host(fabric, "host3")
        kinds = []
        while e.IBV_EVENT_PORT_ERR not in kinds:
            with context.get_async_event(_WAIT_S) as event:
                kinds.append(event.event_type)
