# SPDX-License-Identifier: BSD-3-Clause
"""Datagrams, direct placement and options.  Each function is a scenario that test_rsockets.py runs
on host0."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct

from binding import (
    HOST0,
    HOST1,
    RDMA_INLINE,
    RDMA_IOMAPSIZE,
    RDMA_ROUTE,
    RDMA_SQSIZE,
    SOL_RDMA,
    SOON_S,
    Line,
    RSocket,
    Stopwatch,
    call,
    connection,
    expect_errno,
    listener,
    main,
    peer,
)

DGRAM = socket.SOCK_DGRAM
LONGEST = 4096 - 40  # a path MTU less our header


def _bound(host: str = HOST0) -> tuple[RSocket, int]:
    sock = RSocket(DGRAM).bind(host)
    return sock, sock.name()[1]


def answers_go_to_where_datagrams_came_from() -> None:
    def other(line: Line) -> None:
        port = int(line.hear())
        sock = RSocket(DGRAM)
        for size in (0, 1, 100, 2000, LONGEST):
            data = os.urandom(size)
            assert sock.send_to(data, HOST0, port) == size
            assert sock.receive_from(8192) == (data[::-1], (HOST0, port))
        line.say(sock.name()[1])
        sock.close()

    with peer(other) as client:
        sock, port = _bound()
        client.say(port)
        for size in (0, 1, 100, 2000, LONGEST):
            data, address = sock.receive_from(8192)
            assert len(data) == size
            assert sock.send_to(data[::-1], *address) == size
        assert address == (HOST1, int(client.hear()))
        sock.close()


def a_connected_socket_hears_its_peer_only() -> None:
    one, one_port = _bound()
    two, _two_port = _bound()
    three, three_port = _bound()
    expect_errno(errno.EDESTADDRREQ, one.send, b"whereto")
    three.connect(HOST0, one_port)
    assert three.name("rgetpeername") == (HOST0, one_port)
    two.send_to(b"from two", HOST0, three_port)
    one.send_to(b"from one", HOST0, three_port)
    assert three.receive(100) == b"from one"
    expect_errno(errno.EAGAIN, three.receive, 100, socket.MSG_DONTWAIT)
    assert three.send(b"back") == 4
    assert one.receive_from(10) == (b"back", (HOST0, three_port))
    for sock in (one, two, three):
        sock.close()


def datagrams_are_whole_or_cut() -> None:
    one, port = _bound()
    two = RSocket(DGRAM).connect(HOST0, port)
    two.send(b"abcdef")
    two.send(b"second")
    assert one.poll(select.POLLIN) == select.POLLIN
    assert one.receive(100, socket.MSG_PEEK) == b"abcdef"
    assert one.receive(3) == b"abc"
    assert one.receive(100) == b"second"
    expect_errno(errno.EMSGSIZE, two.send, bytes(LONGEST + 1))
    expect_errno(errno.EAGAIN, one.receive, 1, socket.MSG_DONTWAIT)
    assert one.poll(select.POLLIN, 0.05) == 0
    assert one.poll(select.POLLOUT) == select.POLLOUT
    one.close()
    two.close()


def datagrams_to_nobody_are_lost() -> None:
    sock = RSocket(DGRAM)
    assert sock.send_to(b"hello", HOST1, 9) == 5
    assert sock.send_to(b"hello", HOST0, 9) == 5
    expect_errno(errno.EOPNOTSUPP, sock.listen)
    sock.close()


def a_port_may_change_hands() -> None:
    """Checks that a sender forgets the old owner of a port."""
    sender = RSocket(DGRAM)
    first, port = _bound()
    sender.send_to(b"one", HOST0, port)
    assert first.receive(10) == b"one"
    first.close()
    second = RSocket(DGRAM).bind(HOST0, port)
    watch = Stopwatch()
    while not second.poll(select.POLLIN, 0.05):
        assert watch.elapsed_s < SOON_S
        sender.send_to(b"two", HOST0, port)
    assert second.receive(10) == b"two"
    second.close()
    sender.close()


def many_datagrams_keep_their_order() -> None:
    """Sends as many as there is room for at a time: none is lost."""

    def other(line: Line) -> None:
        sock = RSocket(DGRAM).connect(HOST0, int(line.hear()))
        for start in range(0, 3000, 100):
            for number in range(start, start + 100):
                sock.send(number.to_bytes(4, "big") * 10)
            assert sock.receive(4) == b"more"
        sock.close()

    with peer(other) as client:
        sock, port = _bound()
        client.say(port)
        for number in range(3000):
            data, address = sock.receive_from(100)
            assert data == number.to_bytes(4, "big") * 10
            if number % 100 == 99:
                sock.send_to(b"more", *address)
        sock.close()


def mapped_memory_is_written_before_the_next_message() -> None:
    size = 300_000
    data = os.urandom(size)

    def write(sock: RSocket, part: bytes, offset: int) -> int:
        return call(
            *("riowrite", sock.fd, part, ctypes.c_size_t(len(part))),
            *(ctypes.c_int64(offset), 0),
        )

    def other(line: Line) -> None:
        sock = RSocket()
        sock.set_option(SOL_RDMA, RDMA_IOMAPSIZE, 2)
        sock.connect(HOST0, int(line.hear()))
        assert sock.receive(6) == b"mapped"
        expect_errno(errno.EINVAL, write, sock, b"x", 5)
        expect_errno(errno.EINVAL, write, sock, b"x", 1000 + size)
        at = 0
        while at < size:
            at += write(sock, data[at:], 1000 + at)
        sock.send(b"written")
        assert sock.receive(8) == b"unmapped"
        expect_errno(errno.EINVAL, write, sock, b"x", 1000)
        sock.close()

    with peer(other) as client:
        listening = RSocket().bind(HOST0).listen()
        client.say(listening.name()[1])
        sock = listening.accept()
        memory = ctypes.create_string_buffer(size)

        def riomap(prot: int, offset: int) -> int:
            return call(
                *("riomap", sock.fd, memory, ctypes.c_size_t(size)),
                *(prot, 0, ctypes.c_int64(offset)),
            )

        assert riomap(2, 1000) == 1000
        assert riomap(0, 5) == 5  # for us alone
        assert riomap(2, 1 << 40) == 1 << 40
        expect_errno(errno.ENOMEM, riomap, 2, 1 << 41)
        expect_errno(errno.EINVAL, riomap, 1, 0)
        sock.send(b"mapped")
        assert sock.receive(7) == b"written"
        assert memory.raw == data
        for _ in range(3):
            call("riounmap", sock.fd, memory, ctypes.c_size_t(size))
        expect_errno(errno.EINVAL, call, "riounmap", sock.fd, memory, ctypes.c_size_t(size))
        sock.send(b"unmapped")
        assert sock.receive(1) == b""
        sock.close()
        listening.close()


def options_are_kept_and_bad_ones_refused() -> None:
    sock = RSocket()
    level, tcp = socket.SOL_SOCKET, socket.IPPROTO_TCP
    kept = {
        (level, socket.SO_RCVBUF): 100_000,
        (level, socket.SO_SNDBUF): 200_000,
        (level, socket.SO_REUSEADDR): 1,
        (level, socket.SO_KEEPALIVE): 1,
        (level, socket.SO_OOBINLINE): 1,
        (tcp, socket.TCP_NODELAY): 1,
        (tcp, socket.TCP_KEEPIDLE): 30,
        (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY): 0,
        (SOL_RDMA, RDMA_SQSIZE): 100,
        (SOL_RDMA, RDMA_INLINE): 0,
        (SOL_RDMA, RDMA_IOMAPSIZE): 4,
    }
    for (where, name), value in kept.items():
        sock.set_option(where, name, value)
    assert {key: sock.option(*key) for key in kept} == kept
    linger = struct.pack("=ii", 1, 3)
    sock.set_option(level, socket.SO_LINGER, linger)
    assert sock.option_bytes(level, socket.SO_LINGER) == linger
    assert sock.option(level, socket.SO_TYPE) == socket.SOCK_STREAM
    assert sock.option(level, socket.SO_DOMAIN) == socket.AF_INET
    assert sock.option(level, socket.SO_PROTOCOL) == tcp
    assert sock.option(level, socket.SO_ERROR) == 0
    assert sock.option(tcp, socket.TCP_MAXSEG) > 0
    expect_errno(errno.ENODATA, sock.option, SOL_RDMA, RDMA_ROUTE)
    expect_errno(errno.ENOPROTOOPT, sock.set_option, tcp, 9999, 1)
    expect_errno(errno.ENOPROTOOPT, sock.option, level, 9999)
    expect_errno(errno.EINVAL, sock.set_option, SOL_RDMA, RDMA_INLINE, -1)
    expect_errno(errno.EINVAL, sock.set_option, level, socket.SO_KEEPALIVE, b"\1")
    sock.close()


def options_of_a_connection_have_effect() -> None:
    """Checks that small buffers carry large messages; options of a connection are set before it."""

    def other(sock: RSocket, _line: Line) -> None:
        sock.send_all(sock.receive_exactly(100_000))
        sock.close()

    def shape(sock: RSocket) -> None:
        sock.set_option(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sock.set_option(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        sock.set_option(SOL_RDMA, RDMA_SQSIZE, 1)
        sock.set_option(SOL_RDMA, RDMA_INLINE, 0)

    listening, port = listener()
    shape(listening)
    client = RSocket()
    shape(client)
    client.connect(HOST0, port)
    server = listening.accept()
    expect_errno(errno.EINVAL, client.set_option, SOL_RDMA, RDMA_INLINE, 64)
    assert server.option(SOL_RDMA, RDMA_SQSIZE) == 1
    client.set_nonblocking()
    data = os.urandom(200_000)
    sent = received = 0
    while received < len(data):
        if sent < len(data) and client.poll(select.POLLOUT, 0):
            sent += client.send(data[sent : sent + 70_000])
        if server.poll(select.POLLIN, 0):
            piece = server.receive(9999)
            assert piece == data[received : received + len(piece)]
            received += len(piece)
    for sock in (client, server, listening):
        sock.close()
    with connection(other) as sock:
        sock.send_all(data[:100_000])
        assert sock.receive_to_end() == data[:100_000]


def a_route_may_be_given() -> None:
    """Sets RDMA_ROUTE: struct ibv_path_data, as rdma_getaddrinfo has it in ai_route."""
    route = struct.pack("=II64x", 0x13, 0)
    listening, port = listener()
    client = RSocket()
    client.set_option(SOL_RDMA, RDMA_ROUTE, route)
    assert client.option_bytes(SOL_RDMA, RDMA_ROUTE, 100) == route
    client.connect(HOST0, port)
    server = listening.accept()
    client.send(b"by this way")
    assert server.receive(100) == b"by this way"
    for sock in (client, server, listening):
        sock.close()


if __name__ == "__main__":
    main(dict(globals()))
