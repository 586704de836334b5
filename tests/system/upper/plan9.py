# SPDX-License-Identifier: BSD-3-Clause
"""9P over RDMA: the client is a guest's kernel (9pnet_rdma), the server a process.

The server carries the messages of pyroute2's 9P2000 server by nupa.verbs: each is one SEND.

`plan9.py server PORT` serves one file to one client, and says the hash of its last content.
`plan9.py client ADDRESS PORT` mounts it, reads it, writes it anew, and says both hashes.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

SIZE = 1 << 20
NAME = "file"
_DEPTH, _MESSAGE_BYTES = 32, 1 << 16
_WAIT_S = 120.0


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _content(seed: int) -> bytes:
    return random.Random(seed).randbytes(SIZE)


def sum_of(seed: int) -> str:
    """Returns the hash of the content before the client's writes (0), and after them (1)."""
    return _sum(_content(seed))


def server(port: str) -> None:
    from pyroute2.plan9 import Marshal9P
    from pyroute2.plan9.filesystem import Filesystem
    from pyroute2.plan9.server import Plan9ServerProtocol

    from nupa.verbs import QPCap, QPInitAttr
    from nupa.verbs import cm_enums as ce
    from nupa.verbs import enums as e
    from nupa.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam

    class Transport:
        """The part of asyncio's that the protocol uses."""

        def __init__(self, connection: CMID) -> None:
            self._connection = connection
            self._room = connection.reg_msgs(_MESSAGE_BYTES)

        def write(self, data: bytes) -> None:
            self._room.write(bytes(data), len(data))
            self._connection.post_send(self._room, length=len(data))
            assert self._connection.get_send_comp(_WAIT_S).status == e.IBV_WC_SUCCESS

    def end_with_client(channel: CMEventChannel, connection: CMID) -> None:
        for kind in (ce.RDMA_CM_EVENT_ESTABLISHED, ce.RDMA_CM_EVENT_DISCONNECTED):
            event = CMEvent(channel, _WAIT_S)
            assert event.event_type == kind, event.event_type.name
            event.ack_cm_event()
        connection.disconnect()  # which flushes its receives

    files = Filesystem()
    file = files.create(NAME, mode=0o666)
    file.data.write(_content(0))
    file.sync()
    info = AddrInfo(None, None, port, None, ce.RDMA_PS_TCP, ce.RAI_PASSIVE)
    cap = QPCap(max_send_wr=_DEPTH, max_recv_wr=_DEPTH)
    with CMEventChannel() as channel, CMID(channel) as listener:
        listener.bind_addr(info)
        listener.listen()
        print("listens", flush=True)
        request = CMEvent(channel, _WAIT_S)
        with CMID(request, listen_id=listener) as connection:
            connection.create_qp(QPInitAttr(qp_type=e.IBV_QPT_RC, cap=cap))
            protocol = Plan9ServerProtocol(None, Marshal9P(), files)
            protocol.connection_made(Transport(connection))
            rooms = deque(connection.reg_msgs(_MESSAGE_BYTES) for _ in range(_DEPTH))
            for room in rooms:
                connection.post_recv(room)
            request.ack_cm_event()
            connection.accept(ConnParam())
            threading.Thread(target=end_with_client, args=(channel, connection)).start()
            while (end := connection.get_recv_comp(_WAIT_S)).status == e.IBV_WC_SUCCESS:
                room = rooms[0]
                rooms.rotate(-1)
                message = room.read(end.byte_len, 0)
                connection.post_recv(room)
                protocol.data_received(message)
    print(f"served {_sum(file.data.getvalue())}")


def client(address: str, port: str) -> None:
    options = f"trans=rdma,port={port},version=9p2000,msize={_MESSAGE_BYTES},sq={_DEPTH}"
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-i", "-t", "9p", "-o", options, address, folder]
        subprocess.run(mount, check=True, timeout=_WAIT_S)
        try:
            path = Path(folder, NAME)
            print(f"read {_sum(path.read_bytes())}")
            data = _content(1)
            fd = os.open(path, os.O_WRONLY)
            assert os.write(fd, data) == SIZE
            os.close(fd)
            assert path.read_bytes() == data
            print(f"wrote {_sum(data)}")
        finally:
            subprocess.run(["umount", "-i", folder], check=True, timeout=_WAIT_S)


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {"server": server, "client": client}
    roles[sys.argv[1]](*sys.argv[2:])
