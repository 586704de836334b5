# SPDX-License-Identifier: BSD-3-Clause
"""Numbered operations with checked data, a program of two ends that meet by TCP.

    nupa run -- python -m tests.wire.numbered RC --port 7000 [--count 400]
    nupa run -- python -m tests.wire.numbered RC --port 7000 [--count 400] ADDRESS

The data of an operation follows from its number.  The client ends with an error if an answer is
wrong; the server prints what it saw as JSON.

RC     fetch-and-add, SEND, WRITE with immediate data and READ by turns, many at once
UC     SENDs of one packet and of several
UD     SENDs
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import struct
import time
from typing import IO, Any

from nupa.verbs import (
    AH,
    CQ,
    GID,
    MR,
    PD,
    QP,
    WC,
    Address,
    AHAttr,
    Context,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    address,
    connect_to,
)
from nupa.verbs import enums as e
from tests.wire.lines import exchange, heard, say

GID_INDEX = 3  # of the wire's local address, behind a host's own three
ROOM_BYTES = 16384  # for the data of one operation
DEPTH = 16
RECEIVES = 128
GRH_BYTES = 40
QKEY = 0x1234
TIMEOUT = 14  # 4.096 us << 14, of which wires wait four times, and seven times more
QUIET_S = 0.5  # behind the last datagram
#: What nothing acknowledges waits now and then until the receiver has taken it: so what is lost is
#: lost on the way, and not because a busy machine reads too late.
AT_ONCE = RECEIVES // 4
PAUSE_S = 0.02
DEADLINE_S = 60.0
TYPES = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
OPERATIONS = ("add", "send", "write", "read")  # of RC, by turns


def data_of(number: int, most: int) -> bytes:
    """Returns the data of an operation: of at least its number, at most *most* bytes."""
    rng = random.Random(number)
    return struct.pack("=Q", number) + rng.randbytes(rng.randrange(most - 8))


class End:
    """A QP, and memory: a word that is added to, then rooms."""

    def __init__(self, kind: str, rooms: int) -> None:
        self.kind = kind
        self.context = Context(name="nupa_rdma0")
        self.mtu = self.context.query_port(1).active_mtu
        self.most = (128 << self.mtu) - GRH_BYTES if kind == "UD" else ROOM_BYTES
        self.pd = PD(self.context)
        self.cq = CQ(self.context, RECEIVES + DEPTH)
        self.mr = MR(self.pd, (1 + rooms) * ROOM_BYTES, ACCESS)
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=RECEIVES)
        init = QPInitAttr(TYPES[kind], None, self.cq, self.cq, cap=cap)
        attr = QPAttr(port_num=1)
        attr.qkey = QKEY
        self.qp = QP(self.pd, init, attr) if kind == "UD" else QP(self.pd, init)

    def card(self) -> dict[str, Any]:
        to = address(self.qp, gid_index=GID_INDEX).as_dict()
        return {"address": to, "rkey": self.mr.rkey, "memory": self.mr.buf}

    def connect(self, peer: dict[str, Any]) -> None:
        self.peer, self.to = peer, Address(**peer["address"])
        if self.kind == "UD":
            route = GlobalRoute(dgid=GID(self.to.gid), sgid_index=GID_INDEX, hop_limit=64)
            self.ah = AH(self.pd, attr=AHAttr(dlid=0, is_global=1, port_num=1, gr=route))
        else:
            options = {"mtu": self.mtu, "timeout": TIMEOUT, "min_rnr_timer": 5, "access": ACCESS}
            connect_to(self.qp, self.to, gid_index=GID_INDEX, **options)

    def offset(self, room: int) -> int:
        return (1 + room) * ROOM_BYTES


class Server:
    """Rooms: what receives take, behind them one for each WRITE."""

    def __init__(self, kind: str, count: int) -> None:
        self.end = End(kind, RECEIVES + count)
        self.sends: list[int] = []
        self.writes: list[int] = []
        self.wrong = 0

    def post(self, room: int) -> None:
        end = self.end
        end.qp.post_recv(RecvWR(room, sg=[end.mr.sge(end.offset(room), ROOM_BYTES)]))

    def serve(self, sock: socket.socket) -> None:
        """Receives until the client is done and nothing comes any more."""
        sock.setblocking(False)
        said, since_s = b"", time.monotonic()  #: what the client said last; when something came
        while said != _DONE or time.monotonic() < since_s + QUIET_S:
            _, completions = self.end.cq.poll(RECEIVES)
            for wc in completions:
                self._take(wc)
            line = _line(sock)
            if completions or line:
                said, since_s = line or said, time.monotonic()
            if said == _PAUSE and time.monotonic() > since_s + PAUSE_S:
                sock.send(said)
                said = b""
        sock.setblocking(True)

    def _take(self, wc: WC) -> None:
        wc.raise_for_status()
        end = self.end
        if wc.opcode == e.IBV_WC_RECV_RDMA_WITH_IMM:
            number = socket.ntohl(wc.imm_data)
            self.writes.append(number)
            wanted = data_of(number, end.most)
            found = end.mr.read(len(wanted), end.offset(RECEIVES + number))
        else:
            found = end.mr.read(wc.byte_len, end.offset(wc.wr_id))
            found = found[GRH_BYTES:] if end.kind == "UD" else found
            (number,) = struct.unpack("=Q", found[:8])
            self.sends.append(number)
            wanted = data_of(number, end.most)
        self.wrong += found != wanted
        self.post(wc.wr_id)

    def seen(self) -> dict[str, Any]:
        (added,) = struct.unpack("=Q", self.end.mr.read(8, 0))
        return {"added": added, "sends": self.sends, "writes": self.writes, "wrong": self.wrong}


_PAUSE, _DONE = b'"pause"\n', b'"done"\n'


def _line(sock: socket.socket) -> bytes:
    """Returns what the client says, which waits for an answer before it says more."""
    try:
        return sock.recv(64)
    except BlockingIOError:
        return b""


class Client:
    """Posts the operations in order; each has a room, which the one DEPTH behind takes again."""

    def __init__(self, kind: str, count: int) -> None:
        self.end = End(kind, DEPTH)
        self.count = count
        self.completed = 0

    def run(self, control: IO[bytes]) -> None:
        for number in range(self.count):
            if self.end.kind != "RC" and number % AT_ONCE == AT_ONCE - 1:
                control.write(_PAUSE)
                control.flush()
                assert control.readline() == _PAUSE
            if number - self.completed == DEPTH:
                self._complete()
            self.end.qp.post_send(self._request(number))
        while self.completed < self.count:
            self._complete()

    def _operation(self, number: int) -> str:
        return OPERATIONS[number % len(OPERATIONS)] if self.end.kind == "RC" else "send"

    def _request(self, number: int) -> SendWR:
        end, operation = self.end, self._operation(number)
        at = end.offset(number % DEPTH)
        # A READ returns what the WRITE before it has written.
        data = data_of(number - (operation == "read"), end.most)
        if operation == "add":
            wr = SendWR(number, opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD, sg=[end.mr.sge(at, 8)])
            wr.set_wr_atomic(end.peer["rkey"], end.peer["memory"], 1)
            return wr
        sg = [end.mr.sge(at, len(data))]
        room = end.peer["memory"] + end.offset(RECEIVES + number - (operation == "read"))
        if operation == "read":
            end.mr.write(bytes(len(data)), len(data), at)
            wr = SendWR(number, opcode=e.IBV_WR_RDMA_READ, sg=sg)
            wr.set_wr_rdma(end.peer["rkey"], room)
            return wr
        end.mr.write(data, len(data), at)
        if operation == "write":
            opcode, imm = e.IBV_WR_RDMA_WRITE_WITH_IMM, socket.htonl(number)
            wr = SendWR(number, opcode=opcode, sg=sg, imm_data=imm)
            wr.set_wr_rdma(end.peer["rkey"], room)
            return wr
        wr = SendWR(number, sg=sg)
        if end.kind == "UD":
            wr.set_wr_ud(end.ah, end.to.qp_num, QKEY)
        return wr

    def _complete(self) -> None:
        (wc,) = self.end.cq.wait(1, timeout=DEADLINE_S)
        wc.raise_for_status()
        number, self.completed = self.completed, self.completed + 1
        assert wc.wr_id == number
        at = self.end.offset(number % DEPTH)
        operation = self._operation(number)
        if operation == "add":
            (before,) = struct.unpack("=Q", self.end.mr.read(8, at))
            assert before == number // len(OPERATIONS), f"{before} before operation {number}"
        elif operation == "read":
            wanted = data_of(number - 1, self.end.most)
            assert self.end.mr.read(len(wanted), at) == wanted, f"operation {number}"


def serve(args: argparse.Namespace) -> None:
    with socket.create_server(("", args.port)) as listener:
        sock, _ = listener.accept()
    server = Server(args.kind, args.count)
    with sock, sock.makefile("rwb") as control:
        peer = exchange(control, server.end.card())
        server.end.connect(peer)
        for room in range(RECEIVES):
            server.post(room)
        say(control, "ready")
        server.serve(sock)
    print(json.dumps(server.seen()))


def ask(args: argparse.Namespace) -> None:
    client = Client(args.kind, args.count)
    with (
        socket.create_connection((args.address, args.port), DEADLINE_S) as sock,
        sock.makefile("rwb") as control,
    ):
        client.end.connect(exchange(control, client.end.card()))
        assert heard(control) == "ready"
        client.run(control)
        control.write(_DONE)
        control.flush()
        assert not control.readline()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=TYPES)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("-p", "--port", type=int, required=True)
    parser.add_argument("address", nargs="?")
    args = parser.parse_intermixed_args()  # the address is the last word
    (ask if args.address else serve)(args)


if __name__ == "__main__":
    main()
