# SPDX-License-Identifier: BSD-3-Clause
"""RDMA writes between two hosts of a fabric, by queue pairs of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from nupa.fabric import Fabric
from nupa.verbs import CQ, MR, PD, QP, Context, QPCap, QPInitAttr, SendWR, connect
from nupa.verbs import enums as e

_ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
_BYTES = 65536


class _End:
    def __init__(self, fabric: Fabric, host: int) -> None:
        self.ctx = Context(fabric=fabric, host=host)
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 16)
        self.mr = MR(self.pd, _BYTES, _ACCESS)
        cap = QPCap(max_send_wr=16, max_recv_wr=16)
        self.qp = QP(self.pd, QPInitAttr(e.IBV_QPT_RC, None, self.cq, self.cq, cap=cap))


@contextmanager
def writing(fabric: Fabric, source: int, target: int) -> Iterator[Callable[[], None]]:
    """Connects two hosts; yields a function that writes 64 KiB once."""
    here, there = _End(fabric, source), _End(fabric, target)
    with here.ctx, there.ctx:
        connect(here.qp, there.qp)

        def write() -> None:
            request = SendWR(wr_id=1, opcode=e.IBV_WR_RDMA_WRITE, sg=[here.mr.sge()])
            request.set_wr_rdma(there.mr.rkey, there.mr.buf)
            here.qp.post_send(request)
            here.cq.wait(1, timeout=30)[0].raise_for_status()

        yield write


@contextmanager
def stream(fabric: Fabric, source: int, target: int) -> Iterator[None]:
    """Writes 64 KiB a hundred times a second, until the end."""
    ended = Event()
    with writing(fabric, source, target) as write:

        def run() -> None:
            while not ended.wait(0.01):
                write()

        thread = Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
