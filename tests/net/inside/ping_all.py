# SPDX-License-Identifier: BSD-3-Clause
"""Pings all addresses that are its arguments at once, as fping does; says how many answered."""

from __future__ import annotations

import select
import socket
import struct
import sys
import time

ECHO_REPLY, ECHO = 0, 8  # RFC 792
DEADLINE_S = 10.0
IPV4_HEADER_BYTES = 20


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~((total >> 16) + total) & 0xFFFF


def echo(ident: int) -> bytes:
    payload = bytes(range(48))
    blank = struct.pack("!BBHHH", ECHO, 0, 0, ident, 1) + payload
    return blank[:2] + struct.pack("!H", checksum(blank)) + blank[4:]


def wait(raw: socket.socket, end_s: float) -> bool:
    return bool(select.select([raw], [], [], max(0.0, end_s - time.monotonic()))[0])


def main() -> None:
    addresses = set(sys.argv[1:])
    ident = 0x4E55
    answered: set[str] = set()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        for address in addresses:
            raw.sendto(echo(ident), (address, 0))
        end_s = time.monotonic() + DEADLINE_S
        while answered < addresses and wait(raw, end_s):
            packet, (address, _) = raw.recvfrom(1 << 16)
            kind, _, _, its = struct.unpack_from("!BBHH", packet, IPV4_HEADER_BYTES)
            if kind == ECHO_REPLY and its == ident:
                answered.add(address)
    print(f"{len(answered & addresses)} of {len(addresses)} answered")


main()
