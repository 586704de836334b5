# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of wires, as text and as GIDs."""

from __future__ import annotations

import errno
import ipaddress
import socket

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.core.segment import WHY_BYTES, check, text

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_MAPPED = bytes(10) + b"\xff\xff"


def parse(what: str) -> Address:
    """Returns the address *what*, or that of the machine with this name.

    LocalError: there is no such name, or packets of RoCE cannot go there.
    """
    try:
        found = ipaddress.ip_address(what)
    except ValueError:
        found = ipaddress.ip_address(_resolve(what))
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    if found.is_multicast or found.is_unspecified or str(found) == "255.255.255.255":
        raise LocalError(f"{what} is the address of no one machine: give one", errno.EINVAL)
    if isinstance(found, ipaddress.IPv6Address) and found.is_link_local:
        raise LocalError(
            f"{what} holds on one link only, which a wire does not name: give a global or a "
            f"unique local address (fd00::/8)",
            errno.EINVAL,
        )
    return found


def _resolve(name: str) -> str:
    try:
        infos = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise LocalError(
            f"no address of a machine is {name!r} ({error}): give an IPv4 or IPv6 address",
            errno.EINVAL,
        ) from error
    return str(infos[0][4][0])


def gid(address: Address) -> bytes:
    """Returns the GID of an address; an IPv4 address is mapped."""
    return _MAPPED + address.packed if address.version == 4 else address.packed


def of_gid(raw: bytes) -> str:
    """Returns the address of a GID, as text."""
    if raw.startswith(_MAPPED):
        return str(ipaddress.IPv4Address(raw[12:]))
    return str(ipaddress.IPv6Address(raw))


def local_towards(remote: Address, local: Address | None = None) -> Address:
    """Returns the address from which the kernel sends to *remote*; *local*: that one, checked.

    LocalError, FabricError: no route leads there, or *local* is not of this machine.
    """
    if local is not None and local.version != remote.version:
        raise LocalError(
            f"{remote} and {local} are of two families: give two IPv4 or two IPv6 addresses",
            errno.EINVAL,
        )
    found = ffi.new("uint8_t[16]", gid(local) if local is not None else bytes(16))
    ip_bytes = ffi.new("uint32_t *")
    why = ffi.new("char[]", WHY_BYTES)
    rc = lib.nupa_wire_path(gid(remote), found, ip_bytes, why, WHY_BYTES)
    asked = f"{remote}" if local is None else f"{remote} from {local}"
    check(rc, f"a wire to {asked}", text(why))
    own = ipaddress.ip_address(of_gid(bytes(found)))
    if own == remote:
        raise LocalError(
            f"{remote} is this machine's own address: a wire leads to another one (between two "
            f"fabrics of a machine: 127.0.0.1 and 127.0.0.2, with --listen)",
            errno.EINVAL,
        )
    return own


def beside(remote: Address, local: Address | None) -> Address:
    """Returns *local*, our address on a link with *remote* that the kernel does not know.

    LocalError: it is missing, of another family, or the other end's.
    """
    if local is None:
        raise LocalError(
            f"the kernel does not know the link to {remote}: say our address on it by --listen",
            errno.EINVAL,
        )
    if local.version != remote.version or local == remote:
        raise LocalError(
            f"{remote} and {local}: give two different addresses of one family", errno.EINVAL
        )
    return local
