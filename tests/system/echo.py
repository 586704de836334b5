# SPDX-License-Identifier: BSD-3-Clause
"""Two ends that talk by nupa.verbs: one echoes messages, the other checks all that it moves.

`echo.py serve PORT` takes one connection after another, and says how each ended.
`echo.py ask ADDRESS PORT` goes on for so many rounds, else until the connection fails: it says so.
"""

from __future__ import annotations

import argparse
import struct
import sys

from nupa.verbs import MR, WC, QPCap, QPInitAttr
from nupa.verbs import cm_enums as ce
from nupa.verbs import enums as e
from nupa.verbs.cmid import CMID, AddrInfo

SIZE = 1 << 16
_WHERE = struct.Struct("<QI")  # address and rkey of the memory that the server lends
_ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
_SIZES = (1, 32, 33, 4096, 8193, SIZE)


def say(line: str) -> None:
    print(line, flush=True)


def qp_init() -> QPInitAttr:
    return QPInitAttr(qp_type=e.IBV_QPT_RC, cap=QPCap(max_send_wr=4, max_recv_wr=4))


def serve(port: str, connections: int) -> None:
    info = AddrInfo(None, None, port, None, ce.RDMA_PS_TCP, ce.RAI_PASSIVE)
    with CMID(info, qp_init()) as listener:
        listener.listen()
        for number in range(connections):
            with listener.get_request() as connection:
                echoed, end = echo(connection)
            say(f"connection {number}: {echoed} echoed, then {e.ibv_wc_status(end.status).name}")


def echo(connection: CMID) -> tuple[int, WC]:
    """Returns how many messages it echoed, and the completion that ended it."""
    room, other = connection.reg_msgs(SIZE), connection.reg_msgs(SIZE)
    lent = MR(connection.pd, SIZE, _ACCESS)
    connection.post_recv(room)
    connection.accept()
    other.write(_WHERE.pack(lent.buf, lent.rkey), _WHERE.size)
    connection.post_send(other, length=_WHERE.size)
    end = connection.get_send_comp()
    echoed = 0
    while end.status == e.IBV_WC_SUCCESS:
        end = connection.get_recv_comp()
        if end.status == e.IBV_WC_SUCCESS and end.byte_len == 0:
            break
        if end.status == e.IBV_WC_SUCCESS:
            # Before the answer goes: another message may follow it.
            connection.post_recv(other)
            connection.post_send(room, length=end.byte_len)
            end = connection.get_send_comp()
            room, other = other, room
            echoed += 1
    return echoed, end


class Asker:
    """The client's end of a connection: what it asks it checks."""

    def __init__(self, address: str, port: str) -> None:
        self.id = CMID(AddrInfo(None, address, None, port, ce.RDMA_PS_TCP), qp_init())
        self.out, self.back = self.id.reg_msgs(SIZE), self.id.reg_msgs(SIZE)
        self.id.post_recv(self.back)
        self.id.connect()
        self.id.get_recv_comp().raise_for_status()
        self.address, self.rkey = _WHERE.unpack(self.back.read(_WHERE.size, 0))

    def round(self, number: int) -> WC | None:
        """Does a WRITE, a READ and an echo of the same bytes.  Returns a failed completion, if
        any."""
        size = _SIZES[number % len(_SIZES)]
        data = (number.to_bytes(4, "little") * (size // 4 + 1))[:size]
        self.out.write(data, size)
        self.id.post_write(self.out, size, self.address, self.rkey, e.IBV_SEND_SIGNALED)
        done = self.id.get_send_comp()
        if done.status == e.IBV_WC_SUCCESS:
            self.id.post_read(self.back, size, self.address, self.rkey, e.IBV_SEND_SIGNALED)
            done = self.id.get_send_comp()
        if done.status == e.IBV_WC_SUCCESS:
            self.check(data, f"READ in round {number}")
            self.id.post_recv(self.back)
            self.id.post_send(self.out, length=size)
            done = self.id.get_send_comp()
        if done.status == e.IBV_WC_SUCCESS:
            done = self.id.get_recv_comp()
        if done.status == e.IBV_WC_SUCCESS:
            self.check(data, f"echo in round {number}")
        return None if done.status == e.IBV_WC_SUCCESS else done

    def end(self) -> None:
        """Sends an empty message: no more will come."""
        self.id.post_send(self.out, length=0)
        self.id.get_send_comp().raise_for_status()

    def check(self, data: bytes, what: str) -> None:
        if self.back.read(len(data), 0) != data:
            raise AssertionError(f"{what}: {len(data)} bytes differ from what was sent")


def ask(address: str, port: str, rounds: int | None) -> None:
    asker = Asker(address, port)
    number = 0
    while rounds is None or number < rounds:
        failed = asker.round(number)
        if failed is not None:
            say(f"{number} rounds, then {e.ibv_wc_status(failed.status).name}")
            return
        number += 1
        if number == 1:
            say("begun")
    asker.end()
    say(f"{number} rounds")


def main() -> int:
    parser = argparse.ArgumentParser()
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser("serve")
    server.add_argument("port")
    server.add_argument("--connections", type=int, default=1)
    client = roles.add_parser("ask")
    client.add_argument("address")
    client.add_argument("port")
    client.add_argument("--rounds", type=int)
    args = parser.parse_args()
    if args.role == "serve":
        serve(args.port, args.connections)
    else:
        ask(args.address, args.port, args.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
