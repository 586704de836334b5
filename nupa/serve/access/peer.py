# SPDX-License-Identifier: BSD-3-Clause
"""The user of a peer: who connected to a Unix socket, or over the loopback interface."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from nupa.base.ownership import is_own

if TYPE_CHECKING:
    from collections.abc import Iterable

_UCRED = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid
_ESTABLISHED = "01"  # proc(5), /proc/net/tcp: the column st


def is_own_peer(connection: socket.socket) -> bool:
    """Tells whether the process at the other end is one of this process's user.

    A peer of another machine never is.
    """
    if connection.family == socket.AF_UNIX:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        return is_own(_UCRED.unpack(data)[1])
    try:
        here, there = connection.getsockname(), connection.getpeername()
    except OSError:  # the peer has gone
        return False
    if not _is_loopback(there[0]):
        return False
    user = find_user(_rows(), _endpoint(there), _endpoint(here))
    return user is not None and is_own(user)


def find_user(
    rows: Iterable[str], local: tuple[IPv6Address, int], remote: tuple[IPv6Address, int]
) -> int | None:
    """Returns the user of an established TCP socket of this network namespace.

    *rows*: lines of /proc/net/tcp and tcp6.  A closing socket has lost its user, and shows 0: it is
    not found.
    """
    for row in rows:
        words = row.split()
        if len(words) < 10 or words[3] != _ESTABLISHED or words[9] == "0":
            continue
        if _parsed(words[1]) == local and _parsed(words[2]) == remote:
            return int(words[7])
    return None


def _rows() -> Iterable[str]:
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as file:  # noqa: PTH123
                next(file, None)
                yield from file
        except FileNotFoundError:  # a kernel without IPv6
            continue


def _parsed(word: str) -> tuple[IPv6Address, int]:
    """Parses `0100007F:1F90`: words of four bytes in the machine's order, and the port."""
    address, _, port = word.partition(":")
    words = struct.unpack(f">{len(address) // 8}I", bytes.fromhex(address))
    packed = struct.pack(f"={len(words)}I", *words)
    return _mapped(ip_address(packed)), int(port, 16)


def _endpoint(name: tuple[str, int]) -> tuple[IPv6Address, int]:
    return _mapped(ip_address(name[0].partition("%")[0])), name[1]


def _mapped(address: IPv4Address | IPv6Address) -> IPv6Address:
    """Returns an IPv4 address as its IPv6 socket shows it, so that both compare."""
    if isinstance(address, IPv6Address):
        return address
    return IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)


def _is_loopback(name: str) -> bool:
    address = ip_address(name.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
