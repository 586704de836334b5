# SPDX-License-Identifier: BSD-3-Clause
"""Ordinary TCP programs, which know nothing of RDMA: `tcp.py NAME HOST PORT [FIFO]`."""

from __future__ import annotations

import fcntl
import hashlib
import os
import selectors
import socket
import sys
from pathlib import Path

MESSAGES = 5000


def echo_server(host: str, port: int) -> None:
    """Echoes to one client, byte for byte, until it ends."""
    with socket.create_server((host, port)) as listening:
        connection, address = listening.accept()
        assert connection.getpeername() == address
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)


def echo_client(host: str, port: int) -> None:
    """Thousands of messages, each awaited; a long one; the end of one direction, then the other."""
    with socket.create_connection((host, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        file = connection.makefile("rb")
        for number in range(MESSAGES):
            line = b"message %d\n" % number
            connection.sendall(line)
            assert file.readline() == line
        data = os.urandom(100_000)
        connection.sendall(data)
        assert file.read(len(data)) == data
        connection.sendall(b"the end")
        connection.shutdown(socket.SHUT_WR)
        assert file.read() == b"the end"
        file.close()
    print("echoed")


def many_server(host: str, port: int) -> None:
    """Digests of what several clients send at once: one thread, nothing blocks, poll."""
    selector = selectors.PollSelector()
    digests = {}
    with socket.create_server((host, port)) as listening:
        selector.register(listening, selectors.EVENT_READ)
        done = 0
        while done < 4:
            for key, _ in selector.select():
                if key.fileobj is listening:
                    connection = listening.accept()[0]
                    fcntl.fcntl(connection.fileno(), fcntl.F_SETFL, os.O_NONBLOCK)
                    selector.register(connection, selectors.EVENT_READ)
                    digests[connection] = hashlib.sha256()
                    continue
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                try:
                    data = connection.recv(65536)
                except BlockingIOError:
                    continue
                digests[connection].update(data)
                if not data:
                    selector.unregister(connection)
                    connection.sendall(digests[connection].digest())
                    connection.close()
                    done += 1


def many_client(host: str, port: int) -> None:
    connections = [socket.create_connection((host, port)) for _ in range(4)]
    data = [os.urandom(1_000_000 + number) for number in range(4)]
    for at in range(0, 1_100_000, 50_000):
        for number, connection in enumerate(connections):
            connection.sendall(data[number][at : at + 50_000])
    for number, connection in enumerate(connections):
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(100, socket.MSG_WAITALL)
        assert answer == hashlib.sha256(data[number]).digest()
        connection.close()
    print("counted")


def silent_server(host: str, port: int) -> None:
    """Answers once, and waits to be killed."""
    with socket.create_server((host, port)) as listening:
        connection = listening.accept()[0]
        connection.sendall(b"hello")
        connection.recv(1)


def forsaken_client(host: str, port: int, fifo: str) -> None:
    with socket.create_connection((host, port)) as connection:
        assert connection.recv(5) == b"hello"
        Path(fifo).write_text("waiting")
        try:
            print("end" if connection.recv(1) == b"" else "bytes")
        except ConnectionResetError:
            print("reset")


def refused_client(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port))
    except ConnectionRefusedError:
        print("refused")


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
