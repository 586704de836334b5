# SPDX-License-Identifier: BSD-3-Clause
"""UDP datagrams between hosts, each checked: number, boundaries, all bytes.

usage: datagrams.py receive ADDRESS PORT COUNT [answer] [gro] [group GROUP INTERFACE_ADDRESS]
       datagrams.py send FROM ADDRESS PORT SIZES WINDOW [gso]

SIZES is FIRST:END:STEP:COPIES, in bytes: of each size of the range() so many.  The sender waits
behind each WINDOW of datagrams until the receiver, with `answer`, says that it has them; 0: it
never waits.  With gro, the receiver takes several at once (UDP_GRO) and prints the most that came
together.  With gso, the sender gives WINDOW of them to the kernel at once (UDP_SEGMENT).
"""

from __future__ import annotations

import socket
import struct
import sys

UDP_SEGMENT, UDP_GRO = 103, 104  # <linux/udp.h>
BUFFER_BYTES = 200 << 10
NUMBER = struct.Struct("!IH")  # of the datagram, and its length
PATTERN = bytes(i * 89 % 251 for i in range(1 << 17))
QUESTION = b"have you all?"
DEADLINE_S = 20.0


def datagram(number: int, size: int) -> bytes:
    """Distinguishes datagrams without room for a number by their first bytes."""
    head = NUMBER.pack(number, size)
    at = number % 251
    return (head + PATTERN[at : at + size])[:size]


def open_socket(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(DEADLINE_S)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return made


def take(sock: socket.socket, gro: bool) -> tuple[list[bytes], object]:
    """Returns the datagrams of one read."""
    if not gro:
        data, peer = sock.recvfrom(1 << 16)
        return [data], peer
    data, control, _, peer = sock.recvmsg(1 << 17, socket.CMSG_SPACE(4))
    size = len(data) or 1
    for level, kind, value in control:
        if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
            (size,) = struct.unpack("i", value)
    return [data[at : at + size] for at in range(0, len(data), size)], peer


def receive(address: str, port: str, count: str, *options: str) -> None:
    gro = "gro" in options
    with open_socket(address) as sock:
        sock.bind((address, int(port)))
        if gro:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        if "group" in options:
            group, interface = options[-2:]
            member = socket.inet_aton(group) + socket.inet_aton(interface)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        print("ready")
        number, most = 0, 0
        asks = "answer" in options
        while number < int(count) or asks:
            datagrams, peer = take(sock, gro)
            most = max(most, len(datagrams))
            for data in datagrams:
                if data[: len(QUESTION)] == QUESTION:
                    sock.sendto(data, peer)  # type: ignore[arg-type]
                    asks = number < int(count)
                    continue
                wanted = datagram(number, len(data))
                if data != wanted:
                    sys.exit(
                        f"datagram {number}: {data[:16]!r} of {len(data)}, not {wanted[:16]!r}"
                    )
                number += 1
        print(f"{number} received, up to {most} at once")


def send(source: str, address: str, port: str, sizes: str, window: str, *options: str) -> None:
    to, every = (address, int(port)), int(window)
    first, end, step, copies = map(int, sizes.split(":"))
    lengths = [size for size in range(first, end, step) for _ in range(copies)]
    wanted = [datagram(number, length) for number, length in enumerate(lengths)]
    with open_socket(address) as sock:
        sock.bind((source, 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if ":" not in source:
            interface = socket.inet_aton(source)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
        print("ready")
        for at in range(0, len(wanted), every or len(wanted)):
            burst = wanted[at : at + (every or len(wanted))]
            if "gso" in options:
                sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, len(burst[0]))
                sock.sendto(b"".join(burst), to)
                sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 0)
            else:
                for data in burst:
                    sock.sendto(data, to)
            if every:
                question = QUESTION + b"%d" % at
                sock.sendto(question, to)
                if sock.recv(64) != question:
                    sys.exit(f"another answer than to the datagrams from {at}")
        print(f"{len(wanted)} sent")


if __name__ == "__main__":
    {"receive": receive, "send": send}[sys.argv[1]](*sys.argv[2:])
