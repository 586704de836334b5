# SPDX-License-Identifier: BSD-3-Clause
"""Programs of work requests for two ends in this process, and their expected results."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from nupa.fabric import Fabric
from nupa.verbs import AH, AHAttr, GlobalRoute, QPCap, RecvWR, SendWR, connect
from nupa.verbs import enums as e
from tests.unit.conftest import End, Pair
from tests.unit.fabric.fault_mixtures import FAULTS_MAX

#: A lost packet is sent again after 17 ms (4.096 us * 2^12), seven times.  This is short, and long
#: enough for a responder that waits for a core.
HASTY = {"timeout": 12, "retry_cnt": 7}

_SLOT_BYTES = 20_000
_SLOTS = 3
_COUNTER = _SLOTS * _SLOT_BYTES  # a word that atomics count in
_TARGET_BYTES = _COUNTER + 64
_OPS_MAX = 24
#: The local bytes of each request, and of each receive.
_LOCAL = _TARGET_BYTES
_RECEIVES = _LOCAL + _OPS_MAX * _SLOT_BYTES
REGION_BYTES = _RECEIVES + _OPS_MAX * _SLOT_BYTES


@dataclass(frozen=True)
class Op:
    """One request: of *size* bytes; WRITE and READ at a slot of the peer."""

    what: str  # "send", "write", "read", "add"
    size: int = 8
    slot: int = 0


@st.composite
def ops(draw: st.DrawFn) -> Op:
    what = draw(st.sampled_from(["send", "write", "read", "add"]))
    if what == "add":
        return Op(what)
    size = draw(st.sampled_from([0, 1, 8, 32, 33, 4096, 8192, 8193, _SLOT_BYTES]))
    return Op(what, size, draw(st.integers(0, _SLOTS - 1)))


PROGRAMS = st.lists(ops(), max_size=_OPS_MAX)


@contextmanager
def ends(qp_type: int = e.IBV_QPT_RC, **options: int) -> Iterator[tuple[Fabric, Pair]]:
    """Yields a fabric of this process and an end on each of its two hosts, connected to each
    other."""
    with Fabric(hosts=2) as fabric, ExitStack() as stack:
        cap = QPCap(_OPS_MAX, (1 + FAULTS_MAX) * MESSAGES_MAX + 1, 1, 1, 64)
        made = [End(fabric, host, qp_type, size=REGION_BYTES, cap=cap) for host in (0, 1)]
        for end in made:
            stack.callback(end.ctx.close)
        if qp_type != e.IBV_QPT_UD:
            connect(made[0].qp, made[1].qp, **{**HASTY, **options})
        yield fabric, Pair(*made)


class Program:
    """The requests of *end* to *peer*, and their expected results."""

    def __init__(self, end: End, peer: End, program: Sequence[Op], seed: int) -> None:
        self.end, self.peer, self.program = end, peer, program
        self._rng = Random(seed)
        self._memory = bytearray(self._rng.randbytes(_COUNTER)) + bytes(8)  # the peer's, at its end
        self._local: dict[int, bytes] = {}  # of our region, at its end
        self._received: list[bytes] = []  # by the peer, in order
        self._read: set[int] = set()
        peer.mr.write(bytes(self._memory))

    def post(self) -> None:
        """Receives of the peer, then all requests."""
        sends = sum(op.what == "send" for op in self.program)
        for i in range(sends):
            at = _RECEIVES + i * _SLOT_BYTES
            self.peer.qp.post_recv(RecvWR(1000 + i, sg=[self.peer.mr.sge(at, _SLOT_BYTES)]))
        for i, op in enumerate(self.program):
            self.end.qp.post_send(self._request(i, op))

    def _request(self, i: int, op: Op) -> SendWR:
        at = _LOCAL + i * _SLOT_BYTES
        sge = self.end.mr.sge(at, op.size)
        if op.what == "add":
            return self._addition(i, at, amount=self._rng.randrange(1 << 32))
        if op.what == "read":
            return self._fetch(i, at, op)
        data = self._rng.randbytes(op.size)
        self.end.mr.write(data, offset=at)
        if op.what == "send":
            self._received.append(data)
            return SendWR(i, e.IBV_WR_SEND, sg=[sge])
        # The source of a READ that may still run is not changed (IBTA 10.8.3.3).
        fence = e.IBV_SEND_FENCE if op.slot in self._read else 0
        start = op.slot * _SLOT_BYTES
        self._memory[start : start + op.size] = data
        wr = SendWR(i, e.IBV_WR_RDMA_WRITE, sg=[sge], send_flags=e.IBV_SEND_SIGNALED | fence)
        wr.set_wr_rdma(self.peer.mr.rkey, self.peer.mr.buf + start)
        return wr

    def _fetch(self, i: int, at: int, op: Op) -> SendWR:
        self._read.add(op.slot)
        start = op.slot * _SLOT_BYTES
        self._local[at] = bytes(self._memory[start : start + op.size])
        self.end.mr.write(bytes(op.size), offset=at)
        wr = SendWR(i, e.IBV_WR_RDMA_READ, sg=[self.end.mr.sge(at, op.size)])
        wr.set_wr_rdma(self.peer.mr.rkey, self.peer.mr.buf + start)
        return wr

    def _addition(self, i: int, at: int, amount: int) -> SendWR:
        before = struct.unpack_from("<Q", self._memory, _COUNTER)[0]
        self._local[at] = struct.pack("<Q", before)
        struct.pack_into("<Q", self._memory, _COUNTER, before + amount)
        wr = SendWR(i, e.IBV_WR_ATOMIC_FETCH_AND_ADD, sg=[self.end.mr.sge(at, 8)])
        wr.set_wr_atomic(self.peer.mr.rkey, self.peer.mr.buf + _COUNTER, amount)
        return wr

    @property
    def completions(self) -> int:
        """Checks the requester's end."""
        return len(self.program)

    @property
    def receives(self) -> int:
        """Checks the peer's end."""
        return len(self._received)

    def check(self, sent: list[int], received: list[tuple[int, int]]) -> None:
        """Returns the wr_ids of completed requests, in order, and the lengths of receives."""
        assert sent == list(range(len(self.program)))
        lengths = [(1000 + i, len(data)) for i, data in enumerate(self._received)]
        assert received == lengths
        for i, data in enumerate(self._received):
            assert self.peer.mr.read(len(data), _RECEIVES + i * _SLOT_BYTES) == data, f"SEND {i}"
        for at, data in self._local.items():
            assert self.end.mr.read(len(data), at) == data, self.program[
                (at - _LOCAL) // _SLOT_BYTES
            ]
        assert self.peer.mr.read(len(self._memory)) == self._memory


def run_both(pair: Pair, programs: tuple[Sequence[Op], Sequence[Op]], seed: int) -> None:
    """Runs both ends at once; each request is executed once, in order, and its data is intact."""
    there = Program(pair.a, pair.b, programs[0], seed)
    back = Program(pair.b, pair.a, programs[1], seed + 1)
    there.post()
    back.post()
    a = pair.a.wait_ok(there.completions + back.receives)
    b = pair.b.wait_ok(back.completions + there.receives)
    for program, ours, its in ((there, a, b), (back, b, a)):
        sent = [wc.wr_id for wc in ours if wc.wr_id < 1000]
        received = [(wc.wr_id, wc.byte_len) for wc in its if wc.wr_id >= 1000]
        program.check(sent, received)


MESSAGES_MAX = 24
_GRH_BYTES = 40  # ibv_post_recv(3): a datagram arrives behind it
_ROOM_BYTES = _GRH_BYTES + 4096
_LAST = b"last"


def message_sizes() -> st.SearchStrategy[list[int]]:
    """Makes messages of one packet, which have their number in four bytes."""
    size = st.sampled_from([4, 32, 33, 1000, 4096])
    return st.lists(size, min_size=1, max_size=MESSAGES_MAX)


class Unreliable:
    """Messages from a to b by UC or UD; some may be lost."""

    def __init__(self, pair: Pair, sizes: Sequence[int], seed: int) -> None:
        rng = Random(seed)
        self.sent = [struct.pack("<I", i) + rng.randbytes(size - 4) for i, size in enumerate(sizes)]
        self._a, self._b = pair.a, pair.b
        self._is_ud = pair.a.qp.qp_type == e.IBV_QPT_UD

    def send(self) -> None:
        """Posts receives for all that faults may double, then all messages, which always
        complete."""
        for i in range((1 + FAULTS_MAX) * len(self.sent) + 1):
            self._b.qp.post_recv(RecvWR(i, sg=[self._b.mr.sge(i * _ROOM_BYTES, _ROOM_BYTES)]))
        for data in self.sent:
            self._send(data)

    def _send(self, data: bytes) -> None:
        self._a.mr.write(data)
        wr = SendWR(7, sg=[self._a.mr.sge(0, len(data))])
        with ExitStack() as stack:
            if self._is_ud:
                dgid = self._b.ctx.query_gid(1, 0)
                route = GlobalRoute(dgid=dgid, sgid_index=0, hop_limit=7)
                attr = AHAttr(is_global=1, port_num=1, gr=route)
                handle = stack.enter_context(AH(self._a.pd, attr=attr))
                wr.set_wr_ud(handle, self._b.qp.qp_num, End.QKEY)
            self._a.qp.post_send(wr)
            self._a.wait_ok()

    def received(self) -> list[bytes]:
        """Returns the received messages, in order.  Call it without faults: it sends a last
        message."""
        self._send(_LAST)
        found: list[bytes] = []
        header = _GRH_BYTES if self._is_ud else 0
        while _LAST not in found:
            for wc in self._b.wait_ok():
                at = wc.wr_id * _ROOM_BYTES + header
                found.append(self._b.mr.read(wc.byte_len - header, at))
        assert found.pop() == _LAST
        return found
