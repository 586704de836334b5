# SPDX-License-Identifier: BSD-3-Clause
"""Contents of streams.  Each function is a scenario that test_rsockets.py runs on host0."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import random
import select
import signal
import socket
import struct
import threading

from binding import (
    HOST0,
    SOON_S,
    Iovec,
    Line,
    RSocket,
    Stopwatch,
    call,
    connection,
    expect_errno,
    listener,
    main,
    peer,
    poll,
)

MIB = 1 << 20


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _send_in_pieces(sock: RSocket, data: bytes, rng: random.Random) -> None:
    at = 0
    while at < len(data):
        size = rng.choice((1, 3, 64, 256, 257, 1000, 1024, 1025, 5000, 65536, 300_000))
        sock.send_all(data[at : at + size])
        at += size


def _receive_in_pieces(sock: RSocket, rng: random.Random) -> bytes:
    data = bytearray()
    while piece := sock.receive(rng.choice((1, 7, 100, 4096, 100_000, 400_000))):
        data += piece
    return bytes(data)


def _both_ways(sock: RSocket, seed: int, count: int) -> str:
    """Sends and receives at once; the digest of what came.  Ends both directions."""
    data = random.Random(seed).randbytes(count)

    def send() -> None:
        _send_in_pieces(sock, data, random.Random(seed + 1))
        sock.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    received = _receive_in_pieces(sock, random.Random(seed + 2))
    sender.join()
    return _digest(received)


def every_byte_arrives_in_both_directions_at_once() -> None:
    def other(sock: RSocket, line: Line) -> None:
        line.say(_both_ways(sock, 100, 6 * MIB))
        sock.close()

    with connection(other) as sock:
        assert _both_ways(sock, 200, 4 * MIB) == _digest(random.Random(100).randbytes(6 * MIB))
        assert sock.peer.hear() == _digest(random.Random(200).randbytes(4 * MIB))


def thousands_of_small_messages_keep_their_order() -> None:
    count = 20_000

    def other(sock: RSocket, line: Line) -> None:
        for number in range(count):
            sock.send(number.to_bytes(4, "big"))
        assert line.hear() == "received"
        sock.close()

    with connection(other) as sock:
        for number in range(count):
            assert int.from_bytes(sock.receive(4, socket.MSG_WAITALL), "big") == number
        sock.peer.say("received")
        assert sock.receive(1) == b""


def both_may_send_before_either_receives() -> None:
    """Sends more messages than there are receives, fewer bytes than the ring has."""
    count = 2000

    def exchange(sock: RSocket) -> None:
        for _ in range(count):
            assert sock.send(b"x" * 50) == 50
        assert sock.receive_exactly(50 * count) == b"x" * 50 * count

    def other(sock: RSocket, line: Line) -> None:
        exchange(sock)
        line.hear()
        sock.close()

    with connection(other) as sock:
        exchange(sock)
        sock.peer.say()


def a_full_stream_refuses_more_until_the_peer_reads() -> None:
    def other(sock: RSocket, line: Line) -> None:
        sent = int(line.hear())
        assert len(sock.receive_exactly(sent)) == sent
        line.say("read")
        assert len(sock.receive_exactly(1000)) == 1000
        sock.close()

    with connection(other) as sock:
        sock.set_nonblocking()
        sent = 0
        while sock.poll(select.POLLOUT, 0.2):
            try:
                sent += sock.send(b"y" * 50_000)
            except BlockingIOError:
                continue
        expect_errno(errno.EAGAIN, sock.send, b"z")
        assert sent >= 100_000
        sock.peer.say(sent)
        assert sock.peer.hear() == "read"
        assert sock.poll(select.POLLOUT) == select.POLLOUT
        sock.set_nonblocking(False)
        sock.send_all(b"z" * 1000)


def flags_of_receive() -> None:
    def other(sock: RSocket, line: Line) -> None:
        for word in (b"abc", b"defgh", b"ij"):
            line.hear()
            sock.send(word)
        sock.close()

    with connection(other) as sock:
        expect_errno(errno.EAGAIN, sock.receive, 10, socket.MSG_DONTWAIT)
        sock.peer.say()
        assert sock.receive(10, socket.MSG_PEEK) == b"abc"
        assert sock.receive(2) == b"ab"
        assert sock.receive(10, socket.MSG_DONTWAIT) == b"c"
        sock.peer.say()
        assert sock.poll(select.POLLIN) == select.POLLIN
        sock.peer.say()
        assert sock.receive(7, socket.MSG_WAITALL) == b"defghij"
        expect_errno(errno.EOPNOTSUPP, sock.receive, 1, socket.MSG_OOB)
        expect_errno(errno.EOPNOTSUPP, sock.send, b"a", socket.MSG_OOB)
        assert sock.receive(5, socket.MSG_WAITALL) == b""


def timeouts_of_receive() -> None:
    def other(sock: RSocket, line: Line) -> None:
        line.hear()
        sock.close()

    with connection(other) as sock:
        sock.set_option(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("=qq", 0, 100_000))
        watch = Stopwatch()
        expect_errno(errno.EAGAIN, sock.receive, 1)
        assert 0.1 <= watch.elapsed_s < SOON_S
        sock.peer.say()


def signals_interrupt_or_do_not_as_their_handlers_say() -> None:
    def other(sock: RSocket, line: Line) -> None:
        line.hear()
        sock.send(b"late")
        sock.close()

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with connection(other) as sock:
        caught = threading.Event()
        signal.signal(signal.SIGALRM, lambda *_: caught.set())
        signal.siginterrupt(signal.SIGALRM, True)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        expect_errno(errno.EINTR, sock.receive, 1)
        assert caught.is_set()
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        threading.Timer(0.2, sock.peer.say).start()
        assert sock.receive(10) == b"late"


def vectors_are_gathered_and_scattered() -> None:
    def other(sock: RSocket, _line: Line) -> None:
        texts = [ctypes.create_string_buffer(text, len(text)) for text in (b"ab", b"", b"cdefg")]
        iov = (Iovec * 3)(*(Iovec(ctypes.addressof(text), len(text)) for text in texts))
        assert call("rwritev", sock.fd, iov, 3) == 7
        expect_errno(errno.EINVAL, call, "rwritev", sock.fd, iov, -1)
        sock.close()

    with connection(other) as sock:
        assert sock.receive(7, socket.MSG_PEEK | socket.MSG_WAITALL)
        while len(sock.receive(7, socket.MSG_PEEK)) < 7:
            pass
        parts = [ctypes.create_string_buffer(size) for size in (3, 1, 9)]
        iov = (Iovec * 3)(*(Iovec(ctypes.addressof(part), len(part)) for part in parts))
        assert call("rreadv", sock.fd, iov, 3) == 7
        assert [part.value for part in parts] == [b"abc", b"d", b"efg"]


def four_threads_share_a_socket() -> None:
    """Sends each record in one call, shorter than a piece, so records stay whole."""
    threads, records = 4, 2000

    def other(sock: RSocket, _line: Line) -> None:
        def send(thread: int) -> None:
            for number in range(records):
                assert sock.send(thread.to_bytes(4, "big") + number.to_bytes(4, "big")) == 8

        running = [threading.Thread(target=send, args=(thread,)) for thread in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        sock.close()

    with connection(other) as sock:
        data = sock.receive_to_end()
        seen: list[list[int]] = [[] for _ in range(threads)]
        for at in range(0, len(data), 8):
            thread = int.from_bytes(data[at : at + 4], "big")
            seen[thread].append(int.from_bytes(data[at + 4 : at + 8], "big"))
        assert seen == [list(range(records))] * threads


def a_sender_that_waits_wakes_who_polls_the_same_socket() -> None:
    """Lets one thread take the events of the socket; the other must learn of its own."""

    def other(sock: RSocket, line: Line) -> None:
        line.hear()
        sock.send(b"for the poller")
        line.hear()
        assert len(sock.receive_to_end()) == 8 * MIB
        sock.close()

    with connection(other) as sock:

        def fill() -> None:
            sock.send_all(bytes(8 * MIB))
            sock.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=fill)
        sender.start()
        while sock.poll(select.POLLOUT, 0.05):
            pass
        sock.peer.say()
        assert sock.poll(select.POLLIN) & select.POLLIN
        assert sock.receive(100) == b"for the poller"
        sock.peer.say()
        sender.join()


def many_connections_of_one_thread() -> None:
    """Checks that connecting needs no accept meanwhile, as with TCP."""
    listening, port = listener(backlog=64)
    clients = [RSocket().connect(HOST0, port) for _ in range(40)]
    accepted = []
    for client in clients:
        server, address = listening.accept_from()
        assert address == client.name()
        assert server.name("rgetpeername") == address
        assert client.name("rgetpeername") == server.name() == (HOST0, port)
        accepted.append(server)
    listening.set_nonblocking()
    expect_errno(errno.EAGAIN, listening.accept)
    for number, (client, server) in enumerate(zip(clients, accepted, strict=True)):
        client.send(number.to_bytes(4, "big"))
        assert server.receive_exactly(4) == number.to_bytes(4, "big")
        server.send(b"ok")
        assert client.receive_exactly(2) == b"ok"
    for sock in (*clients, *accepted, listening):
        sock.close()


def a_full_backlog_lets_nobody_be_lost() -> None:
    def other(line: Line, count: int) -> None:
        port = int(line.hear())
        socks = [RSocket() for _ in range(count)]
        for sock in socks:
            sock.set_nonblocking()
            expect_errno(errno.EINPROGRESS, sock.connect, HOST0, port)
        line.say()
        for sock in socks:
            assert sock.poll(select.POLLOUT) == select.POLLOUT
            assert sock.error == 0
            sock.send(b"!")
            sock.close()

    with peer(other, 6) as client:
        listening, port = listener(backlog=1)
        client.say(port)
        client.hear()
        for _ in range(6):
            assert poll([(listening.fd, select.POLLIN)], SOON_S) == [select.POLLIN]
            sock = listening.accept()
            assert sock.receive_to_end() == b"!"
            sock.close()
        listening.close()


if __name__ == "__main__":
    main(dict(globals()))
