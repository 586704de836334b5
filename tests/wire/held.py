# SPDX-License-Identifier: BSD-3-Clause
"""A program on each machine: RC QPs that stay idle, or write until a WRITE fails.

    nupa run --host host0 -- python -P tests/wire/held.py serve ADDRESS PORT [--gids 3,4] [--mtu N]
    nupa run --host host1 -- python -P tests/wire/held.py meet ADDRESS PORT [the same]

Both meet by TCP.  There is a QP for each index in --gids.  Each end prints its pid once a WRITE of
8 bytes has passed each QP, and stays until the other end is gone.

--write: the client writes --mtu bytes to the last QP again and again, until that fails, then 8
bytes to the first one.  It prints both status.
"""

from __future__ import annotations

import argparse
import os
import socket
from typing import IO

from nupa.verbs import CQ, MR, PD, QP, Context, QPCap, QPInitAttr, SendWR
from nupa.verbs import enums as e
from nupa.verbs.connection import Address, address, connect_to
from tests.wire.lines import exchange

_SMALL_BYTES = 8
_TIMEOUT = 14  # 4.096 us << 14, of which wires wait four times, eight times in a row: 2.1 s
_DEADLINE_S = 60.0
_ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


class End:
    def __init__(self, talk: IO[bytes], gids: list[int], mtu_bytes: int) -> None:
        self.mtu_bytes = mtu_bytes
        pd = PD(Context(name="nupa_rdma0"))
        self.cq = CQ(pd.ctx, 16)
        self.mr = MR(pd, mtu_bytes, _ACCESS)
        init = QPInitAttr(e.IBV_QPT_RC, None, self.cq, self.cq, cap=QPCap(4, 4))
        self.qps = [QP(pd, init) for _ in gids]
        own = [address(qp, gid_index=gid).as_dict() for qp, gid in zip(self.qps, gids, strict=True)]
        self.peer = exchange(talk, {"qps": own, "rkey": self.mr.rkey, "at": self.mr.buf})
        mtu = (mtu_bytes // 128).bit_length() - 1  # enum ibv_mtu: 1 is 256
        options = {"mtu": mtu, "timeout": _TIMEOUT, "access": _ACCESS}
        for qp, gid, to in zip(self.qps, gids, self.peer["qps"], strict=True):
            connect_to(qp, Address(**to), gid_index=gid, **options)
        exchange(talk, "connected")

    def write(self, qp: QP, length: int) -> int:
        """Returns the status of a WRITE."""
        wr = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[self.mr.sge(0, length)])
        wr.set_wr_rdma(self.peer["rkey"], self.peer["at"])
        qp.post_send(wr)
        (found,) = self.cq.wait(1, timeout=_DEADLINE_S)
        return int(found.status)

    def write_until_one_fails(self) -> None:
        status = 0
        while not status:
            status = self.write(self.qps[-1], self.mtu_bytes)
        print(f"large: {status}, small: {self.write(self.qps[0], _SMALL_BYTES)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["serve", "meet"])
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--gids", type=lambda text: [*map(int, text.split(","))], default=[3])
    parser.add_argument("--mtu", type=int, default=1024)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.role == "serve":
        with socket.create_server((args.address, args.port)) as listener:
            connection, _ = listener.accept()
    else:
        connection = socket.create_connection((args.address, args.port), _DEADLINE_S)
        connection.settimeout(None)
    with connection, connection.makefile("rwb") as talk:
        end = End(talk, args.gids, args.mtu)
        for qp in end.qps:
            assert end.write(qp, _SMALL_BYTES) == e.IBV_WC_SUCCESS
        exchange(talk, "written")
        print(f"pid {os.getpid()}.", flush=True)
        if args.write and args.role == "meet":
            end.write_until_one_fails()
        else:
            talk.readline()


if __name__ == "__main__":
    main()
