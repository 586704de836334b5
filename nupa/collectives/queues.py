# SPDX-License-Identifier: BSD-3-Clause
"""Chunks between ranks by verbs: an RC queue pair for each two ranks, and SENDs with the call's tag
as immediate data.

    Q1  A chunk is sent when its receiver has a receive for it: the receiver writes how many it has
        consumed into the sender's memory (RDMA WRITE).  Without this, RC would send chunks again
        and again until a receive is there (RNR NAK), and links would carry them as often.
"""

from __future__ import annotations

import mmap
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from nupa.base.closing import Closing
from nupa.collectives.elements import numpy
from nupa.collectives.rank import RankError
from nupa.collectives.transport import SLOTS, Arrival
from nupa.verbs import enums as e
from nupa.verbs.batch import RecvBatch, SendBatch, WCBatch
from nupa.verbs.connection import Address, address, connect_to
from nupa.verbs.cq import CQ
from nupa.verbs.device import Context
from nupa.verbs.enums import ibv_wc_status
from nupa.verbs.mr import MR
from nupa.verbs.pd import PD
from nupa.verbs.qp import QP, QPCap, QPInitAttr
from nupa.verbs.wr import RecvWR, SendWR

if TYPE_CHECKING:
    from nupa.collectives.board import Board
    from nupa.collectives.elements import Octets
    from nupa.core.segment import HostInfo
    from nupa.fabric import Fabric

_STAGING_BYTES = 8 << 20  # about so much for all slots
_CHUNK_MIN_BYTES = 4096
_CHUNK_MAX_BYTES = 256 << 10
_POLLED = 32
# In wr_id: a send, a write of what was consumed; else a receive.
_SENT, _CREDIT = 1 << 32, 1 << 33
_CREDIT_BYTES = 16  # of a pair: what the peer has consumed, what we have


class _Pair:
    """The queue pair to one rank, with slots of memory to send from and to receive in."""

    def __init__(self, qp: QP, mr: MR, staging: Octets, place: int, peer: int, chunk: int) -> None:
        self.qp, self.peer = qp, peer
        at = place * 2 * SLOTS * chunk
        offsets = range(at, at + 2 * SLOTS * chunk, chunk)
        slots = [staging[offset : offset + chunk] for offset in offsets]
        self.outbox, self.inbox = slots[:SLOTS], slots[SLOTS:]
        #: Of each slot: the request, its SGE's length, its immediate data.
        self.sends: list[tuple[SendBatch, Any, Any]] = []
        self.receives: list[RecvBatch] = []
        for i in range(SLOTS):
            wr = SendWR(
                wr_id=_SENT | peer << 8 | i,
                opcode=e.IBV_WR_SEND_WITH_IMM,
                sg=[mr.sge(offsets[i], chunk)],
            )
            send = qp.batch(1, wr)
            self.sends.append((send, send.sge["length"].reshape(1), send.wr["imm_data"]))
            into = RecvWR(wr_id=peer << 8 | i, sg=[mr.sge(offsets[SLOTS + i], chunk)])
            self.receives.append(qp.recv_batch(1, into))
        self.sent = self.completed = 0
        self.arrived: deque[tuple[int, int, int]] = deque()  # slot, tag, size
        words = len(staging) - (place + 1) * _CREDIT_BYTES
        self._mr, self._words_at = mr, words
        self._words: Any = staging[words : words + _CREDIT_BYTES].view("u8")
        self._credit: SendBatch | None = None

    def card(self) -> dict[str, Any]:
        """Returns where the peer writes what it has consumed, and the address of the QP."""
        where = {"credit": self._mr.buf + self._words_at, "rkey": self._mr.rkey}
        return {"address": address(self.qp).as_dict(), **where}

    def connect(self, card: dict[str, Any]) -> None:
        """Connects to the peer with that card, and posts all receives."""
        connect_to(self.qp, Address(**card["address"]))
        for receive in self.receives:
            receive.post()
        wr = SendWR(
            wr_id=_CREDIT | self.peer << 8,
            opcode=e.IBV_WR_RDMA_WRITE,
            sg=[self._mr.sge(self._words_at + 8, 8)],
        )
        wr.set_wr_rdma(card["rkey"], card["credit"])
        self._credit = self.qp.batch(1, wr)

    @property
    def consumed(self) -> int:
        """How many chunks the peer has consumed."""
        return int(self._words[0])

    def return_slot(self, slot: int) -> None:
        """Posts the receive of a slot again, and tells the peer (Q1)."""
        self.receives[slot].post()
        self._words[1] += 1
        assert self._credit is not None
        self._credit.post()


def chunk_bytes(ranks: int) -> int:
    """Returns the bytes of a slot: a power of two."""
    each = _STAGING_BYTES // (2 * SLOTS * max(1, ranks - 1))
    return max(_CHUNK_MIN_BYTES, min(_CHUNK_MAX_BYTES, 1 << each.bit_length() - 1))


class Queues(Closing):
    """A device on *host*, and queue pairs to all other ranks."""

    def __init__(self, fabric: Fabric, host: HostInfo, board: Board) -> None:
        self._board = board
        peers = [rank for rank in range(board.size) if rank != board.rank]
        chunk = self.chunk_bytes = chunk_bytes(board.size)
        self._pairs: dict[int, _Pair] = {}
        self._polled = WCBatch(_POLLED)
        wcs = self._polled.array
        self._fields = wcs["wr_id"], wcs["status"], wcs["imm_data"], wcs["byte_len"]
        with ExitStack() as stack:
            context = stack.enter_context(Context(fabric=fabric, host=host))
            pd = stack.enter_context(PD(context))
            memory: Any = mmap.mmap(-1, len(peers) * (2 * SLOTS * chunk + _CREDIT_BYTES))
            access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
            mr = stack.enter_context(MR(pd, memory, access))
            staging = numpy().frombuffer(memory, "u1")
            # Sends and credits that are posted, and receives.
            self._cq = stack.enter_context(CQ(context, len(peers) * 5 * SLOTS))
            for place, peer in enumerate(peers):
                init = QPInitAttr(
                    qp_type=e.IBV_QPT_RC,
                    scq=self._cq,
                    rcq=self._cq,
                    cap=QPCap(4 * SLOTS, SLOTS, 1, 1, 0),
                    sq_sig_all=0,
                )
                qp = stack.enter_context(QP(pd, init))
                self._pairs[peer] = _Pair(qp, mr, staging, place, peer, chunk)
            self._connect()
            self._stack = stack.pop_all()

    def _connect(self) -> None:
        cards = {str(peer): pair.card() for peer, pair in self._pairs.items()}
        self._board.put_card({"pairs": cards})
        for peer, pair in self._pairs.items():
            card = self._board.card(peer)
            with self._board.reading(peer):
                pair.connect(card["pairs"][str(self._board.rank)])
        self._board.barrier()  # the other ends can receive

    def try_send(self, peer: int, data: Octets, tag: int) -> bool:
        pair = self._pairs[peer]
        if pair.sent - min(pair.completed, pair.consumed) == SLOTS:
            self.progress()
            if pair.sent - min(pair.completed, pair.consumed) == SLOTS:
                return False
        slot = pair.sent % SLOTS
        pair.outbox[slot][: len(data)] = data
        send, length, imm_data = pair.sends[slot]
        length[0], imm_data[0] = len(data), tag
        send.post()
        pair.sent += 1
        return True

    def try_receive(self, peer: int, into: Octets) -> Arrival | None:
        pair = self._pairs[peer]
        if not pair.arrived:
            self.progress()
            if not pair.arrived:
                return None
        slot, tag, size = pair.arrived.popleft()
        if size == len(into):
            into[:] = pair.inbox[slot][:size]
        pair.return_slot(slot)
        return Arrival(tag, size)

    def progress(self) -> None:
        """Polls completions.  RankError: one has an error."""
        while (found := self._cq.poll_batch(self._polled)) > 0:
            # Lists of integers: NumPy's own scalars cost more than the poll.
            for wc in zip(*(field[:found].tolist() for field in self._fields), strict=True):
                self._complete(*wc)
            if found < _POLLED:
                return

    def _complete(self, wr_id: int, status: int, tag: int, size: int) -> None:
        peer, slot = wr_id >> 8 & 0xFFFFFF, wr_id & 0xFF
        if status != e.IBV_WC_SUCCESS:
            self._board.look("a work request")  # says more, if the rank is dead
            name = ibv_wc_status(status).name
            why = f"a work request of rank {peer} completed with {name}"
            self._board.fail(why)
            raise RankError(why)
        if wr_id & _SENT:
            self._pairs[peer].completed += 1
        elif not wr_id & _CREDIT:
            self._pairs[peer].arrived.append((slot, tag, size))

    def is_idle(self) -> bool:
        # Not the writes of what was consumed: a peer that computes answers them late.
        return all(pair.sent == pair.completed for pair in self._pairs.values())

    def close(self) -> None:
        self._stack.close()
