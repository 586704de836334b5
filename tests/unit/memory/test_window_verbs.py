# SPDX-License-Identifier: BSD-3-Clause
"""A window that is registered: RDMA from another host and the window's own atomics agree."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from nupa.fabric import Fabric
from nupa.memory import atomic_fetch_add, atomic_load
from nupa.verbs import MR, SendWR
from nupa.verbs import enums as e

ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
ADDS = 500


@pytest.mark.parametrize("mover", ["local", "relay"])
def test_rdma_atomics_and_those_of_a_window_lose_nothing(
    fabric: Fabric, make_pair: Callable[..., Any], mover: str
) -> None:
    pair = make_pair(mover=mover, size=4096)
    with (
        fabric.pool.alloc(4096, share=["host1"]) as region,
        fabric.host(1).map(region) as there,
        fabric.host(0).map(region) as here,
        MR(pair.b.pd, there, ACCESS) as mr,
    ):

        def count() -> None:
            for _ in range(ADDS):
                atomic_fetch_add(here, 0, 1)

        counter = threading.Thread(target=count)
        counter.start()
        for _ in range(ADDS):
            wr = SendWR(1, e.IBV_WR_ATOMIC_FETCH_AND_ADD, sg=[pair.a.mr.sge(0, 8)])
            wr.set_wr_atomic(mr.rkey, mr.buf, 1)
            pair.a.qp.post_send(wr)
            pair.a.wait_ok()
        counter.join()
        assert atomic_load(here, 0) == 2 * ADDS
        pair.a.mr.write(b"by RDMA")
        wr = SendWR(2, e.IBV_WR_RDMA_WRITE, sg=[pair.a.mr.sge(0, 7)])
        wr.set_wr_rdma(mr.rkey, mr.buf + 64)
        pair.a.qp.post_send(wr)
        pair.a.wait_ok()
        assert here[64:71] == b"by RDMA"
