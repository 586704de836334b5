# SPDX-License-Identifier: BSD-3-Clause
"""Two ends that echo bytes over TCP and datagrams over UDP; the asking one compares them.

`frames.py serve PORT` takes one connection, and datagrams while it lasts.
`frames.py ask ADDRESS PORT` says what it has compared.
"""

from __future__ import annotations

import random
import socket
import sys
import threading
import time

STREAM_BYTES = 8 << 20
#: Of a datagram with segments of its own, up to what one of Linux carries (UDP_MAX_SEGMENTS).
_SIZES = ((1, 1), (1472, 1), (60000, 1), (1000, 64), (200, 64))
_UDP_SEGMENT = 103  # <linux/udp.h>
_PART_BYTES = 1 << 16
_DEADLINE_S = 60.0
_AGAIN_S = 1.0


def serve(port: str) -> None:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    datagrams.bind(("", int(port)))
    threading.Thread(target=_echo_datagrams, args=(datagrams,), daemon=True).start()
    with socket.create_server(("", int(port))) as listener:
        stream, _ = listener.accept()
        with stream:
            while part := stream.recv(_PART_BYTES):
                stream.sendall(part)


def _echo_datagrams(datagrams: socket.socket) -> None:
    while True:
        datagrams.sendto(*datagrams.recvfrom(_PART_BYTES))


def ask(address: str, port: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    where = (address, int(port))
    with socket.create_connection(where, _DEADLINE_S) as stream:
        _ask_stream(stream, source.randbytes(STREAM_BYTES))
        for size_bytes, segments in _SIZES:
            _ask_datagrams(where, size_bytes, segments, source)
            print(f"{segments} of {size_bytes} bytes")


def _ask_stream(stream: socket.socket, data: bytes) -> None:
    sender = threading.Thread(target=stream.sendall, args=(data,))
    sender.start()
    got = bytearray()
    while len(got) < len(data) and (part := stream.recv(_PART_BYTES)):
        got += part
    sender.join()
    assert got == data
    print(f"{len(got)} bytes")


def _ask_datagrams(
    where: tuple[str, int], size_bytes: int, segments: int, source: random.Random
) -> None:
    """Sends them by one call; those that are lost, as UDP may, again."""
    wanted = {source.randbytes(size_bytes) for _ in range(segments)}
    missing = set(wanted)
    until = time.monotonic() + _DEADLINE_S
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        datagrams.connect(where)
        datagrams.settimeout(_AGAIN_S)
        while missing:
            assert time.monotonic() < until, f"{len(missing)} of {size_bytes} bytes are missing"
            segment_bytes = size_bytes if len(missing) > 1 else 0
            datagrams.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, segment_bytes)
            datagrams.send(b"".join(missing))
            try:
                while missing:
                    got = datagrams.recv(_PART_BYTES)
                    assert got in wanted, f"{len(got)} bytes that nobody sent"
                    missing.discard(got)
            except TimeoutError:
                continue


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:])
