# SPDX-License-Identifier: BSD-3-Clause
"""A program of one host: it carries out what the exchange asks for, a JSON object a line."""

from __future__ import annotations

import json
import sys
from random import Random
from typing import Any

from nupa.fabric import Fabric
from nupa.verbs import (
    CQ,
    MR,
    PD,
    QP,
    Address,
    Context,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    address,
    connect_to,
)
from nupa.verbs import enums as e
from nupa.verbs.base.errors import PyverbsRDMAError

#: The first half of the memory is what a host has; the second half is what it gets.
HALF_BYTES = 16 << 10
_ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
_OPCODES = {
    "write": e.IBV_WR_RDMA_WRITE,
    "read": e.IBV_WR_RDMA_READ,
    "send": e.IBV_WR_SEND,
}
# A partner that may not answer is given up after 2 × 4.096 µs << 11.
_TIMEOUT, _RETRIES = 11, 1
_PATIENCE_S = 60.0


def pattern(seed: int) -> bytes:
    """Returns HALF_BYTES that tell one seed from another."""
    return Random(seed).randbytes(HALF_BYTES)


class Worker:
    """One host's memory, and the QP of the exchange that it takes part in."""

    def __init__(self, fabric: Fabric, host: str) -> None:
        self._context = Context(fabric=fabric, host=host)
        self._pd = PD(self._context)
        self._memory = MR(self._pd, 2 * HALF_BYTES, _ACCESS)
        self._cq: CQ | None = None
        self._qp: QP | None = None

    def open(self) -> dict[str, Any]:
        self._cq = CQ(self._context, 16)
        cap = QPCap(max_send_wr=4, max_recv_wr=4)
        self._qp = QP(self._pd, QPInitAttr(e.IBV_QPT_RC, None, self._cq, self._cq, cap=cap))
        return {
            "address": address(self._qp).as_dict(),
            "rkey": self._memory.rkey,
            "at": self._memory.buf,
        }

    def connect(self, peer: dict[str, Any], pkey_index: int) -> dict[str, Any]:
        assert self._qp is not None
        try:
            connect_to(
                self._qp,
                Address(**peer),
                pkey_index=pkey_index,
                timeout=_TIMEOUT,
                retry_cnt=_RETRIES,
            )
        except PyverbsRDMAError as error:
            return {"refused": error.error_code}
        return {}

    def fill(self, own: int, got: int) -> dict[str, Any]:
        self._memory.write(pattern(own))
        self._memory.write(pattern(got), HALF_BYTES, HALF_BYTES)
        return {}

    def receive(self) -> dict[str, Any]:
        assert self._qp is not None
        self._qp.post_recv(RecvWR(wr_id=1, sg=[self._memory.sge(HALF_BYTES, HALF_BYTES)]))
        return {}

    def post(self, kind: str, at: int, rkey: int) -> dict[str, Any]:
        """Posts one request and returns the status of its completion."""
        assert self._qp is not None
        assert self._cq is not None
        here = HALF_BYTES if kind == "read" else 0
        there = at if kind == "read" else at + HALF_BYTES
        request = SendWR(
            wr_id=2,
            opcode=_OPCODES[kind],
            sg=[self._memory.sge(here, HALF_BYTES)],
            send_flags=e.IBV_SEND_SIGNALED,
        )
        if kind != "send":
            request.set_wr_rdma(rkey, there)
        try:
            self._qp.post_send(request)
        except PyverbsRDMAError as error:
            return {"status": f"errno {error.error_code}"}
        (done,) = self._cq.wait(1, timeout=_PATIENCE_S)
        return {"status": e.ibv_wc_status(done.status).name}

    def check(self, own: int, old: int, new: int) -> dict[str, Any]:
        """Compares each byte with the patterns that may be there."""
        got = self._memory.read(HALF_BYTES, HALF_BYTES)
        before, after = pattern(old), pattern(new)
        if got == before:
            state = "old"
        elif got == after:
            state = "new"
        elif all(byte in pair for byte, *pair in zip(got, before, after, strict=True)):
            state = "partly new"
        else:
            state = "wrong"
        return {"kept": self._memory.read(HALF_BYTES) == pattern(own), "got": state}

    def close(self) -> dict[str, Any]:
        for each in (self._qp, self._cq):
            if each is not None:
                each.close()
        self._qp = self._cq = None
        return {}


def main(name: str, host: str) -> None:
    with Fabric.open(name) as fabric:
        worker = Worker(fabric, host)
        for line in sys.stdin:
            wish = json.loads(line)
            print(json.dumps(getattr(worker, wish.pop("do"))(**wish)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
