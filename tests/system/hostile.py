# SPDX-License-Identifier: BSD-3-Clause
"""A program that scribbles over its own queues and rings their doorbells (rdma_user_rxe.h).

It runs in a guest, by pyverbs and rdma-core's own libraries.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import struct
import sys
from pathlib import Path

from pyverbs import enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

_POST_SEND, _WORDS = 28, 8
_HEADER = 384  # of struct rxe_queue_buf
_PRODUCER, _CONSUMER = 128, 256
_HANDLES = 8


def _queues() -> list[tuple[int, int]]:
    """Returns address and size of each mapping of the device."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("/uverbs0"):
            start, end = (int(word, 16) for word in line.split()[0].split("-"))
            found.append((start, end - start))
    return found


def _connect(context: Context, qp: QP) -> None:
    """Connects it to itself."""
    gid = context.query_gid(1, 1)
    attr = QPAttr(port_num=1)
    attr.dest_qp_num = qp.qp_num
    attr.path_mtu = e.IBV_MTU_1024
    attr.qkey = 1
    attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=GlobalRoute(dgid=gid, sgid_index=1))
    qp.to_rts(attr)


def _ring(fd: int) -> None:
    answer = ctypes.create_string_buffer(64)
    for handle in range(_HANDLES):
        at = ctypes.addressof(answer)
        command = struct.pack("<IHHQIIII", _POST_SEND, _WORDS, 1, at, handle, 0, 0, 128)
        with contextlib.suppress(OSError):  # refused, or not a queue pair
            os.write(fd, command)


def _scribble(rng: random.Random, at: int, size: int) -> None:
    data = bytearray(rng.randbytes(min(size - _HEADER, 4096)))
    for offset in range(0, len(data) - 64, 64):
        # Half of the words are small, as opcodes and counts are.
        for word in range(offset, offset + 64, 8):
            if rng.random() < 0.5:
                struct.pack_into("<Q", data, word, rng.randrange(16))
    ctypes.memmove(at + _HEADER, bytes(data), len(data))
    for index in (_PRODUCER, _CONSUMER):
        ctypes.memmove(at + index, struct.pack("<I", rng.getrandbits(32)), 4)


def main(seed: int, rounds: int) -> None:
    context = Context(name="nupa_rdma0")
    pd, cq = PD(context), CQ(context, 64)
    access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
    mr = MR(pd, 65536, access)
    cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=4, max_recv_sge=4)
    qps = [
        QP(pd, QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=cap))
        for kind in (e.IBV_QPT_RC, e.IBV_QPT_UC, e.IBV_QPT_UD)
    ]
    (fd,) = (
        int(path.name)
        for path in Path("/proc/self/fd").iterdir()
        if os.path.realpath(path).endswith("/uverbs0")
    )
    rng = random.Random(seed)
    for _ in range(rounds):
        for qp in qps:
            qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
            _connect(context, qp)
        for at, size in _queues():
            _scribble(rng, at, size)
            _ring(fd)
    print(len(_queues()), mr.lkey)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
