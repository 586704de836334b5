# SPDX-License-Identifier: BSD-3-Clause
"""A program on each machine: RC requests that perftest has not, with checked data.

    nupa run --host host0 -- python -P tests/wire/operations.py serve ADDRESS PORT
    nupa run --host host1 -- python -P tests/wire/operations.py meet ADDRESS PORT

Both meet by TCP.  First the server sends requests and the client has what they need, then the other
way round.
"""

from __future__ import annotations

import socket
import sys
from typing import IO, Any

from nupa.verbs import CQ, MR, MW, PD, QP, Context, QPCap, QPInitAttr, RecvWR, SendWR
from nupa.verbs import enums as e
from nupa.verbs.connection import Address, address, connect_to
from nupa.verbs.mr import MWBindInfo
from tests.wire.lines import heard, say

_GID_INDEX = 3  # as in lab.py
_TARGET, _COUNTER, _BYTES = 8192, 16384, 32768  # of what the peer reads and writes
_LENGTHS = (0, 1, 3, 1024, 1025, 5000)
_TIMEOUT_S = 30.0
_REMOTE = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
_ACCESS = e.IBV_ACCESS_LOCAL_WRITE | _REMOTE | e.IBV_ACCESS_MW_BIND
_ATOMICS = (e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_ATOMIC_CMP_AND_SWP)


class End:
    """A connected QP, and lines of JSON that both ends say to each other."""

    def __init__(self, talk: IO[bytes]) -> None:
        self.talk = talk
        self.pd = PD(Context(name="nupa_rdma0"))
        self.cq = CQ(self.pd.ctx, 100)
        self.mr = MR(self.pd, _BYTES, _ACCESS)
        cap = QPCap(max_send_wr=16, max_recv_wr=16)
        self.qp = QP(self.pd, QPInitAttr(e.IBV_QPT_RC, None, self.cq, self.cq, cap=cap))
        own = address(self.qp, gid_index=_GID_INDEX).as_dict()
        self.say(address=own, rkey=self.mr.rkey, at=self.mr.buf)
        self.peer = self.heard()
        partner = Address(**self.peer["address"])
        connect_to(self.qp, partner, gid_index=_GID_INDEX, mtu=e.IBV_MTU_1024)

    def say(self, **words: Any) -> None:
        say(self.talk, words)

    def heard(self) -> dict[str, Any]:
        words: dict[str, Any] = heard(self.talk)
        return words

    def done(self) -> Any:
        (found,) = self.cq.wait(1, timeout=_TIMEOUT_S)
        found.raise_for_status()
        return found

    def request(self, opcode: int, length: int, number: int = 0) -> None:
        """Executes one request; *number*: immediate data, or the key to invalidate."""
        wr = SendWR(1, opcode, imm_data=number, sg=[self.mr.sge(0, length)] if length else None)
        if opcode in _ATOMICS:
            wr.set_wr_atomic(self.peer["rkey"], self.peer["at"] + _COUNTER, 5, 7)
        elif opcode == e.IBV_WR_SEND_WITH_INV:
            wr.invalidate_rkey = number
        elif opcode != e.IBV_WR_SEND_WITH_IMM:
            wr.set_wr_rdma(self.peer["rkey"], self.peer["at"] + _TARGET)
        self.qp.post_send(wr)
        self.done()

    def receive(self, length: int, **words: Any) -> Any:
        """Says that a receive is posted, and returns its completion; the data are checked."""
        self.mr.write(bytes(length), offset=_TARGET)
        self.qp.post_recv(RecvWR(1, sg=[self.mr.sge(_TARGET, _TARGET)]))
        self.say(**words)
        found = self.done()
        assert found.byte_len == length
        assert self.mr.read(length, _TARGET) == _text(length)
        return found


def _text(length: int) -> bytes:
    return bytes((at * 7 + length) % 251 for at in range(length))


TEXT = _text(_LENGTHS[-1])[:64]  #: where data are not encrypted, this is seen


def ask(end: End) -> None:
    for length in _LENGTHS:
        end.mr.write(_text(length))
        for opcode in (e.IBV_WR_SEND_WITH_IMM, e.IBV_WR_RDMA_WRITE_WITH_IMM):
            end.heard()
            end.request(opcode, length, 0x01020304 + length)
    end.mr.write(_text(9))
    end.request(e.IBV_WR_SEND_WITH_INV, 9, end.heard()["window"])
    end.heard()  # the counter is set
    for opcode, before in zip(_ATOMICS, (0, 5), strict=True):
        end.request(opcode, 8)
        assert end.mr.read(8) == before.to_bytes(8, sys.byteorder)
    for length in _LENGTHS[1:]:
        end.mr.write(bytes(length))
        end.request(e.IBV_WR_RDMA_READ, length)
        assert end.mr.read(length) == _text(_LENGTHS[-1])[:length]
    end.say(done=True)


def obey(end: End) -> None:
    for length in _LENGTHS:
        for opcode in (e.IBV_WC_RECV, e.IBV_WC_RECV_RDMA_WITH_IMM):
            found = end.receive(length)
            assert (found.opcode, found.imm_data) == (opcode, 0x01020304 + length)
    with MW(end.pd, e.IBV_MW_TYPE_2) as window:
        bind = SendWR(2, e.IBV_WR_BIND_MW)
        bind.set_bind_wr(window, MWBindInfo(end.mr, end.mr.buf, 64, e.IBV_ACCESS_REMOTE_WRITE))
        end.qp.post_send(bind)
        end.done()
        assert end.receive(9, window=bind.rkey).invalidated_rkey == bind.rkey
    end.mr.write(bytes(8), offset=_COUNTER)
    end.mr.write(_text(_LENGTHS[-1]), offset=_TARGET)
    end.say(ready=True)
    assert end.heard() == {"done": True}
    assert end.mr.read(8, _COUNTER) == (7).to_bytes(8, sys.byteorder)


def main(role: str, host: str, port: str) -> None:
    where = (host, int(port))
    if role == "serve":
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server(where, family=family) as listener:
            connection, _ = listener.accept()
    else:
        connection = socket.create_connection(where)
    with connection, connection.makefile("rwb") as talk:
        end = End(talk)
        for turn in (ask, obey) if role == "serve" else (obey, ask):
            turn(end)
        end.qp.close()
    print("all data are right")


if __name__ == "__main__":
    main(*sys.argv[1:])
