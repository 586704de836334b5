# SPDX-License-Identifier: BSD-3-Clause
"""SMC-R: a socket of AF_SMC echoes, and the kernel tells by smc_diag what carries it.

`smc.py server ADDRESS PORT` and `smc.py client ADDRESS PORT`.  RoCE v2 needs SMC-Rv2, and that an
enterprise ID (EID) that both hosts have; without it SMC falls back to TCP (smc_ib.c, smc_clc.c).
"""

from __future__ import annotations

import ctypes
import os
import random
import socket
import struct
import subprocess
import sys

_AF_SMC = 43
_EID = b"NUPA".ljust(32) + b"\0"  # in capitals, padded with blanks
_BYTES = 4 << 20
# linux/netlink.h, genetlink.h, sock_diag.h, smc.h, smc_diag.h
_HEADER = struct.Struct("=IHHII")
_GENERIC = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_NETLINK_SOCK_DIAG, _NETLINK_GENERIC = 4, 16
_GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, _CTRL_FAMILY_ID, _CTRL_FAMILY_NAME = 16, 3, 1, 2
_SMC_ADD_UEID, _SMC_EID_ENTRY = 10, 1
_SOCK_DIAG_BY_FAMILY = 20
_SMC_REQUEST_BYTES, _SMC_MSG_BYTES, _SMC_DIAG_LGRINFO = 52, 72, 2
_MODES = {0: "SMC-R", 1: "TCP", 2: "SMC-D"}


def _attribute(kind: int, data: bytes) -> bytes:
    whole = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind) + data
    return whole.ljust((len(whole) + 3) & ~3, b"\0")


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while data:
        size, kind = _ATTRIBUTE.unpack_from(data)
        found[kind] = data[_ATTRIBUTE.size : size]
        data = data[(size + 3) & ~3 :]
    return found


def _ask(protocol: int, kind: int, flags: int, payload: bytes) -> list[bytes]:
    """Returns the payloads of the answers.  OSError: the kernel's."""
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as netlink:
        size = _HEADER.size + len(payload)
        netlink.send(_HEADER.pack(size, kind, _REQUEST | flags, 1, 0) + payload)
        while True:
            data = netlink.recv(1 << 16)
            while data:
                size, kind, *_ = _HEADER.unpack_from(data)
                message, data = data[_HEADER.size : size], data[(size + 3) & ~3 :]
                if kind == _NLMSG_ERROR and (error := struct.unpack_from("=i", message)[0]):
                    raise OSError(-error, os.strerror(-error))
                if kind in (_NLMSG_ERROR, _NLMSG_DONE):
                    return found
                found.append(message)


def _generic(family: int, command: int, attribute: bytes) -> list[bytes]:
    payload = _GENERIC.pack(command, 1, 0) + attribute
    return _ask(_NETLINK_GENERIC, family, _ACK, payload)


def add_eid() -> None:
    name = _attribute(_CTRL_FAMILY_NAME, b"SMC_GEN_NETLINK\0")
    (answer,) = _generic(_GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, name)
    family = struct.unpack("=H", _attributes(answer[_GENERIC.size :])[_CTRL_FAMILY_ID])[0]
    _generic(family, _SMC_ADD_UEID, _attribute(_SMC_EID_ENTRY, _EID))


def carriers(port: int) -> set[str]:
    """Returns what carries the connections of a peer's or own port, with SMC-R's device."""
    request = bytes([_AF_SMC, 0, 0, 1 << (_SMC_DIAG_LGRINFO - 1)]).ljust(_SMC_REQUEST_BYTES, b"\0")
    found = set()
    for answer in _ask(_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _DUMP, request):
        mode, (source, peer) = answer[2], struct.unpack_from("!HH", answer, 4)
        group = _attributes(answer[_SMC_MSG_BYTES:]).get(_SMC_DIAG_LGRINFO)
        if port in (source, peer) and (group or mode == 1):
            device = group[1:].split(b"\0")[0].decode() if group else ""
            found.add(f"{_MODES[mode]} {device}".strip())
    return found


def smc_socket() -> socket.socket:
    """Returns a socket of AF_SMC, whose addresses are those of AF_INET."""
    number = ctypes.CDLL(None, use_errno=True).socket(_AF_SMC, socket.SOCK_STREAM, 0)
    if number < 0:
        raise OSError(ctypes.get_errno(), "no socket of AF_SMC")
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, number)


def server(address: str, port: int) -> None:
    with smc_socket() as listener:
        listener.bind((address, port))
        listener.listen(1)
        print("listens", flush=True)
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)


def client(address: str, port: int) -> None:
    data = random.Random(5).randbytes(_BYTES)
    with smc_socket() as connection:
        connection.connect((address, port))
        for at in range(0, _BYTES, 1 << 16):
            part = data[at : at + (1 << 16)]
            connection.sendall(part)
            back = b""
            while len(back) < len(part):
                back += connection.recv(len(part) - len(back))
            assert back == part, f"other data at {at}"
        print(f"{_BYTES} bytes by", ", ".join(sorted(carriers(port))))


if __name__ == "__main__":
    subprocess.run(["/sbin/modprobe", "smc_diag"], check=True)  # it needs smc
    add_eid()
    {"server": server, "client": client}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
