# SPDX-License-Identifier: BSD-3-Clause
"""Traffic of NUPA itself, captured and replayed: random, with failures, on several queue pairs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from nupa.capture.live import Live
from nupa.capture.sinks import FileSink
from nupa.capture.view import View
from nupa.fabric import Fabric
from nupa.replay import replay
from nupa.verbs import (
    CQ,
    MR,
    PD,
    QP,
    Context,
    PyverbsRDMAError,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    connect,
)
from nupa.verbs import enums as e

SIZE = 1 << 14
ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
RELIABLE = ["send", "imm", "write", "write_imm", "read", "add", "swap"]
UNRELIABLE = ["send", "write", "write_imm"]
OPCODES = {
    "send": e.IBV_WR_SEND,
    "imm": e.IBV_WR_SEND_WITH_IMM,
    "write": e.IBV_WR_RDMA_WRITE,
    "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
    "add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
    "swap": e.IBV_WR_ATOMIC_CMP_AND_SWP,
}


class Host:
    def __init__(self, fabric: Fabric, index: int, mover: str, rng: Random) -> None:
        self.ctx = Context(fabric=fabric, host=index, mover=mover)
        self.pd = PD(self.ctx)
        self.sends, self.receives = CQ(self.ctx, 4096), CQ(self.ctx, 4096)
        self.shared = MR(self.pd, SIZE, ACCESS)
        self.own = MR(self.pd, 1 << 16, ACCESS)
        self.shared.write(rng.randbytes(SIZE))

    def qp(self, kind: int) -> QP:
        cap = QPCap(64, 64, 4, 4, 0)
        return QP(self.pd, QPInitAttr(kind, None, self.sends, self.receives, cap=cap))


class Traffic:
    """Requests in bursts, each on one of a few pairs of queue pairs."""

    def __init__(self, fabric: Fabric, mover: str, rng: Random) -> None:
        self.rng = rng
        self.hosts = [Host(fabric, index, mover, rng) for index in range(3)]
        self.pairs = [self._pair() for _ in range(5)]
        self.posted = 0

    def _pair(self) -> list[tuple[Host, QP]]:
        kind = self.rng.choice([e.IBV_QPT_RC] * 4 + [e.IBV_QPT_UC])
        ends = [(host, host.qp(kind)) for host in self.rng.sample(self.hosts, 2)]
        connect(ends[0][1], ends[1][1], mtu=self.rng.randint(1, 5), rnr_retry=0)
        return ends

    def burst(self) -> None:
        awaited: Counter[int] = Counter()
        for _ in range(self.rng.randrange(1, 12)):
            ends = list(self.rng.choice(self.pairs))
            self.rng.shuffle(ends)
            (host, qp), (peer, peer_qp) = ends
            try:
                self._post(host, qp, peer, peer_qp)
            except PyverbsRDMAError:  # the pair has failed before
                continue
            awaited[host.ctx.host] += 1
        for host in self.hosts:
            host.sends.wait(awaited[host.ctx.host], 20)
            host.receives.poll(100)
            self.posted += awaited[host.ctx.host]
        for place, ends in enumerate(self.pairs):
            if any(qp.qp_state == e.IBV_QPS_ERR for _, qp in ends):
                for _, qp in ends:
                    qp.close()
                self.pairs[place] = self._pair()

    def _post(self, host: Host, qp: QP, peer: Host, peer_qp: QP) -> None:
        rng = self.rng
        reliable = qp.qp_type == e.IBV_QPT_RC
        kind = rng.choice(RELIABLE if reliable else UNRELIABLE)
        atomic = kind in ("add", "swap")
        size = 8 if atomic else rng.choice([0, 1, 64, 300, rng.randrange(6000)])
        at = rng.randrange(64) * 8 if atomic else rng.randrange(SIZE - 6000)
        place = rng.randrange(1000)
        if kind not in ("read", "add", "swap"):
            host.own.write(rng.randbytes(size), None, place)
        if kind in ("send", "imm", "write_imm") and (not reliable or rng.random() < 0.95):
            peer_qp.post_recv(RecvWR(sg=[peer.own.sge(30000, 20000)]))
        sg = [host.own.sge(place if not atomic else 20000, size)] if size else []
        wr = SendWR(opcode=OPCODES[kind], sg=sg, imm_data=rng.randrange(1 << 32))
        key, va = peer.shared.rkey, peer.shared.buf + at
        if reliable and rng.random() < 0.02:
            key += 0x1200
        if atomic:
            wr.set_wr_atomic(key, va, rng.randrange(4), rng.randrange(4))
        elif kind in ("read", "write", "write_imm"):
            wr.set_wr_rdma(key, va)
        qp.post_send(wr)


@pytest.mark.parametrize("mover", ["local", "relay"])
@pytest.mark.parametrize("seed", range(3))
def test_random_traffic_with_failures_is_replayed_without_a_difference(
    tmp_path: Path, seed: int, mover: str
) -> None:
    path = tmp_path / "x.pcapng"
    with Fabric(hosts=3) as fabric, Live(fabric, ["any"], ["transport", "queue"]) as live:
        sink = FileSink(path, interfaces=live.interfaces)
        traffic = Traffic(fabric, mover, Random(seed))
        for _ in range(25):
            traffic.burst()
            for batch in live.batches():
                sink.take(View(batch), None)
        for host in traffic.hosts:
            host.ctx.close()
        for batch in live.batches():
            sink.take(View(batch), None)
        assert live.counts.lost == 0
        sink.close(Counter(), 0)
    report = replay(path)
    assert report.differed == 0, report
    assert report.played + sum(report.skipped.values()) <= traffic.posted
    # Requests posted behind a failure were never sent, or are not played.
    assert report.matched > 0.8 * traffic.posted, report
