# SPDX-License-Identifier: BSD-3-Clause
"""Programs of hosts that meet by sockets, for test_hosts.py; each prints the addresses it sees.

python meets.py serve ADDRESS PORT            one TCP client
python meets.py call ADDRESS PORT             a TCP server
python meets.py answer ADDRESS PORT           one datagram
python meets.py ask ADDRESS PORT WAY          a datagram by sendto, sendmsg or connect
python meets.py titled ADDRESS PORT           as serve, with another title over its environment
python meets.py spray ADDRESS ...             a datagram and a connection to each; errno of each
"""

from __future__ import annotations

import ctypes
import errno
import socket
import sys

_WAIT_S = 20.0


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def serve(address: str, port: str) -> None:
    family = _family(address)
    both = family == socket.AF_INET6
    with socket.create_server((address, int(port)), family=family, dualstack_ipv6=both) as listener:
        print("listens", flush=True)
        listener.settimeout(_WAIT_S)
        connection, peer = listener.accept()
        with connection:
            connection.sendall(connection.recv(64))
            print(peer[0], connection.getpeername()[0], connection.getsockname()[0], flush=True)


def call(address: str, port: str) -> None:
    with socket.create_connection((address, int(port)), timeout=_WAIT_S) as connection:
        connection.sendall(b"hello")
        assert connection.recv(64) == b"hello"
        print(connection.getsockname()[0], connection.getpeername()[0])


def answer(address: str, port: str) -> None:
    with socket.socket(_family(address), socket.SOCK_DGRAM) as server:
        server.bind((address, int(port)))
        server.settimeout(_WAIT_S)
        print("listens", flush=True)
        data, peer = server.recvfrom(64)
        server.sendto(data, peer)
        print(peer[0], flush=True)


def ask(address: str, port: str, way: str) -> None:
    to = (address, int(port))
    with socket.socket(_family(address), socket.SOCK_DGRAM) as client:
        client.settimeout(_WAIT_S)
        if way == "connect":
            client.connect(to)
            client.send(b"hello")
        elif way == "sendmsg":
            client.sendmsg([b"hel", b"lo"], [], 0, to)
        else:
            client.sendto(b"hello", to)
        data, _, _, peer = client.recvmsg(64)
        assert data == b"hello"
        print(peer[0])


def titled(address: str, port: str) -> None:
    # proc_pid_stat(5): env_start, env_end.
    with open("/proc/self/stat", encoding="ascii") as file:  # noqa: PTH123
        start, end = (int(word) for word in file.read().rsplit(")", 1)[1].split()[47:49])
    ctypes.memset(start, ord("t"), end - start)
    serve(address, port)


def spray(*addresses: str) -> None:
    for address in addresses:
        said = []
        with socket.socket(_family(address), socket.SOCK_DGRAM) as client:
            try:
                client.sendto(b"hello", (address, 9))
                said.append("sent")
            except OSError as error:
                said.append(errno.errorcode[error.errno or 0])
        with socket.socket(_family(address), socket.SOCK_STREAM) as client:
            client.settimeout(_WAIT_S)
            said.append(errno.errorcode[client.connect_ex((address, 9))])
        print(address, *said)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
