# SPDX-License-Identifier: BSD-3-Clause
"""RDS over RDMA (rds_rdma, without rds_tcp).

`rds.py server ADDRESS PORT`, `rds.py client ADDRESS PEER PORT`, `rds.py ping ADDRESS PEER`.  *ping*
is rds-ping: a message to port 0, which the peer's kernel answers (rds(7)).
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys

_SOL_RDS, _SO_RDS_TRANSPORT, _RDS_TRANS_IB = 276, 8, 0
_MESSAGES = 32
_SIZES = (1, 4096, 65536)  # the default send buffer has room for 100 KiB
_DEADLINE_S = 60.0


def bound(address: str, port: int) -> socket.socket:
    rds = socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET)
    rds.settimeout(_DEADLINE_S)
    rds.setsockopt(_SOL_RDS, _SO_RDS_TRANSPORT, _RDS_TRANS_IB)
    rds.bind((address, port))
    return rds


def server(address: str, port: str) -> None:
    with bound(address, int(port)) as rds:
        print("listens", flush=True)
        for _ in range(_MESSAGES):
            data, sender = rds.recvfrom(1 << 20)
            rds.sendto(data, sender)


def client(address: str, peer: str, port: str) -> None:
    chance = random.Random(3)
    with bound(address, 0) as rds:
        for number in range(_MESSAGES):
            data = chance.randbytes(_SIZES[number % len(_SIZES)])
            rds.sendto(data, (peer, int(port)))
            assert rds.recv(1 << 20) == data, f"message {number} is another"
    print(f"{_MESSAGES} messages came back")


def ping(address: str, peer: str) -> None:
    with bound(address, 0) as rds:
        for _ in range(_MESSAGES):
            rds.sendto(b"", (peer, 0))
            assert rds.recvfrom(1) == (b"", (peer, 0))
    print(f"{_MESSAGES} pings were answered")


if __name__ == "__main__":
    subprocess.run(["/sbin/modprobe", "rds_rdma"], check=True)
    {"server": server, "client": client, "ping": ping}[sys.argv[1]](*sys.argv[2:])
