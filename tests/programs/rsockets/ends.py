# SPDX-License-Identifier: BSD-3-Clause
"""How streams begin and end.  Each function is a scenario that test_rsockets.py runs on host0."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import select
import signal
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

from binding import (
    HOST0,
    HOST1,
    SOON_S,
    Line,
    RSocket,
    Stopwatch,
    call,
    connection,
    expect_errno,
    library,
    listener,
    main,
    peer,
    poll,
)

ENDED = select.POLLIN | select.POLLRDHUP


def who_shuts_down_may_still_receive() -> None:
    def other(sock: RSocket, _line: Line) -> None:
        question = sock.receive_to_end()
        sock.send_all(question.upper() * 1000)
        sock.close()

    with connection(other) as sock:
        sock.send(b"question")
        sock.shutdown(socket.SHUT_WR)
        expect_errno(errno.EPIPE, sock.send, b"more")
        assert sock.receive_to_end() == b"QUESTION" * 1000
        assert sock.receive(1) == b""


def what_was_sent_before_close_arrives() -> None:
    data = os.urandom(300_000)

    def other(sock: RSocket, line: Line) -> None:
        sock.send_all(data)
        sock.close()
        line.say("closed")

    with connection(other) as sock:
        assert sock.peer.hear() == "closed"
        assert sock.poll(ENDED) & ENDED == ENDED
        assert sock.receive_to_end() == data


def who_ends_without_closing_ends_its_streams() -> None:
    def other(sock: RSocket, _line: Line) -> None:
        sock.send_all(b"last words")

    with connection(other) as sock:
        sock.peer.wait()
        assert sock.receive_to_end() == b"last words"
        assert sock.error == 0


def to_who_closed_nothing_can_be_sent() -> None:
    def other(sock: RSocket, line: Line) -> None:
        sock.close()
        line.say("closed")
        line.hear()

    with connection(other) as sock:
        assert sock.peer.hear() == "closed"
        codes = set()
        while errno.EPIPE not in codes:
            assert sock.poll(select.POLLOUT) & select.POLLOUT
            try:
                sock.send(b"anybody?")
            except OSError as error:
                codes.add(error.errno)
        assert codes <= {errno.EPIPE, errno.ECONNRESET}
        assert sock.poll(0) & select.POLLHUP
        sock.peer.say()


def a_stopped_peer_does_not_hold_up_close() -> None:
    """Checks that a resumed peer has all data, though the socket is long closed."""
    data = os.urandom(100_000)

    def other(sock: RSocket, line: Line) -> None:
        line.say("stopping")
        os.kill(os.getpid(), signal.SIGSTOP)
        line.say("going on" if sock.receive_to_end() == data else "wrong")
        sock.close()

    with connection(other) as sock:
        assert sock.peer.hear() == "stopping"
        os.waitid(os.P_PID, sock.peer.pid, os.WSTOPPED)
        sock.send_all(data)
        watch = Stopwatch()
        descriptor = sock.fd
        sock.close()
        assert watch.elapsed_s < 2
        expect_errno(errno.EBADF, sock.send, b"x")
        os.kill(sock.peer.pid, signal.SIGCONT)
        assert sock.peer.hear() == "going on"
        while Path(f"/proc/self/fd/{descriptor}").exists():
            assert watch.elapsed_s < SOON_S
        sock.fd = call("rsocket", socket.AF_INET, socket.SOCK_STREAM, 0)


def who_lingers_for_no_time_resets() -> None:
    def other(sock: RSocket, _line: Line) -> None:
        sock.set_option(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        sock.close()

    with connection(other) as sock:
        expect_errno(errno.ECONNRESET, sock.receive, 1)
        assert sock.receive(1) == b""
        expect_errno(errno.EPIPE, sock.send, b"x")


def a_killed_peer_is_noticed_within_a_second() -> None:
    def other(sock: RSocket, line: Line) -> None:
        sock.send(b"here")
        line.hear()

    with connection(other) as sock:
        assert sock.receive(4) == b"here"
        killed: list[Stopwatch] = []

        def kill() -> None:
            killed.append(Stopwatch())
            os.kill(sock.peer.pid, signal.SIGKILL)

        threading.Timer(0.1, kill).start()
        expect_errno(errno.ECONNRESET, sock.receive, 1)
        assert killed[0].elapsed_s < 1
        assert sock.poll(select.POLLIN | select.POLLOUT) & select.POLLHUP
        expect_errno(errno.EPIPE, sock.send, b"x")
        sock.peer.wait(signal.SIGKILL)


def a_poller_notices_that_its_peer_was_killed() -> None:
    def other(_sock: RSocket, line: Line) -> None:
        line.hear()

    with connection(other) as sock:
        pipe = os.pipe()
        threading.Timer(0.1, os.kill, (sock.peer.pid, signal.SIGKILL)).start()
        revents = poll([(pipe[0], select.POLLIN), (sock.fd, select.POLLIN)], SOON_S)
        assert revents[0] == 0
        assert revents[1] & select.POLLIN
        assert revents[1] & (select.POLLERR | select.POLLHUP)
        assert sock.error == errno.ECONNRESET
        assert sock.error == 0
        sock.peer.wait(signal.SIGKILL)
        os.close(pipe[0])
        os.close(pipe[1])


def peers_that_die_at_any_moment_leave_nobody_waiting() -> None:
    """Kills a peer at any point: during a connect, a stream in either direction, a close."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    listening, port = listener()
    for _ in range(25):
        pid = os.fork()
        if pid == 0:
            while True:
                sock = RSocket().connect(HOST0, port)
                for size in (10, 100_000, 1000):
                    sock.send_all(bytes(size))
                    sock.receive_exactly(size)
                sock.close()
        timer = threading.Timer(rng.random() * 0.05, os.kill, (pid, signal.SIGKILL))
        timer.start()
        while timer.is_alive() or listening.poll(select.POLLIN, 0):
            if not listening.poll(select.POLLIN, 0.02):
                continue
            sock = listening.accept()
            watch = Stopwatch()
            with suppress(ConnectionResetError, BrokenPipeError):
                while data := sock.receive(65536):
                    sock.send_all(data)
            sock.close()
            assert watch.elapsed_s < SOON_S
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    listening.close()


def connecting_to_nobody_is_refused() -> None:
    sock = RSocket()
    expect_errno(errno.ECONNREFUSED, sock.connect, HOST0, 1)
    expect_errno(errno.ECONNREFUSED, sock.connect, HOST1, 1)
    expect_errno(errno.ENOTCONN, sock.send, b"x")
    expect_errno(errno.ENOTCONN, sock.receive, 1)
    expect_errno(errno.ENOTCONN, sock.shutdown, socket.SHUT_WR)
    expect_errno(errno.ENOTCONN, sock.name, "rgetpeername")
    listening, port = listener()
    sock.connect(HOST0, port)
    expect_errno(errno.EISCONN, sock.connect, HOST0, port)
    sock.close()
    sock = RSocket()
    sock.set_nonblocking()
    expect_errno(errno.EINPROGRESS, sock.connect, HOST0, 1)
    assert sock.poll(select.POLLOUT) & (select.POLLERR | select.POLLHUP)
    assert sock.error == errno.ECONNREFUSED
    sock.close()
    listening.close()


def an_address_that_no_host_has_is_unreachable() -> None:
    sock = RSocket()
    expect_errno(errno.EHOSTUNREACH, sock.connect, "10.0.0.200", 1)
    sock.close()


def a_port_has_one_listener() -> None:
    first, port = listener()
    second = RSocket()
    expect_errno(errno.EADDRINUSE, second.bind, HOST0, port)
    expect_errno(errno.EADDRNOTAVAIL, second.bind, HOST1, port)
    expect_errno(errno.EINVAL, second.accept)
    expect_errno(errno.EINVAL, first.bind, HOST0, 0)
    expect_errno(errno.EISCONN, first.connect, HOST0, port)
    assert first.name() == (HOST0, port)
    assert first.option(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
    first.close()
    second.set_option(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    second.bind(HOST0, port).listen()
    second.close()


def connections_that_nobody_took_end_with_the_listener() -> None:
    listening, port = listener()
    clients = [RSocket().connect(HOST0, port) for _ in range(3)]
    listening.close()
    for client in clients:
        assert client.poll(select.POLLIN) & select.POLLIN
        client.close()
    expect_errno(errno.ECONNREFUSED, RSocket().connect, HOST0, port)


def descriptors_are_real_ones() -> None:
    lowest = os.dup(0)
    os.close(lowest)
    sock = RSocket()
    assert sock.fd == lowest
    os.fstat(sock.fd)
    file = os.open("/dev/null", os.O_RDONLY)
    assert file != sock.fd
    expect_errno(errno.ENOTSOCK, call, "rsend", file, b"x", ctypes.c_size_t(1), 0)
    os.close(file)
    expect_errno(errno.EBADF, call, "rsend", 1 << 19, b"x", ctypes.c_size_t(1), 0)
    expect_errno(errno.EBADF, call, "rclose", -1)
    sock.close()
    expect_errno(errno.EBADF, call, "rclose", sock.fd)
    expect_errno(errno.EAFNOSUPPORT, call, "rsocket", socket.AF_UNIX, socket.SOCK_STREAM, 0)
    expect_errno(errno.EPROTONOSUPPORT, call, "rsocket", socket.AF_INET, socket.SOCK_RAW, 0)


def closing_returns_all_descriptors_and_memory() -> None:
    def count() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text().count("\n")
        return len(list(Path("/proc/self/fd").iterdir())), maps

    def once() -> None:
        listening, port = listener()
        client = RSocket().connect(HOST0, port)
        server = listening.accept()
        client.send(b"x" * 100_000)
        assert len(server.receive_exactly(100_000)) == 100_000
        for sock in (client, server, listening):
            sock.close()

    for _ in range(3):
        once()
    files, maps = count()
    for _ in range(20):
        once()
    assert count()[0] == files
    assert count()[1] <= maps + 10


def closing_wakes_who_waits() -> None:
    listening, _port = listener()
    threading.Timer(0.1, listening.close).start()
    expect_errno(errno.EBADF, listening.accept)


def a_child_may_close_what_it_inherited() -> None:
    """Forks as servers do: the connection continues in the parent."""

    def other(sock: RSocket, _line: Line) -> None:
        sock.send(sock.receive(100)[::-1])
        sock.close()

    with connection(other) as sock:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                expect_errno(errno.EBADF, sock.send, b"not mine")
                sock.close()
                expect_errno(errno.EBADF, sock.close)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        sock.send(b"abc")
        assert sock.receive_to_end() == b"cba"


def a_child_has_sockets_of_its_own() -> None:
    def other(line: Line) -> None:
        RSocket().close()  # this process is attached now; its child is not
        port = int(line.hear())
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                sock = RSocket().connect(HOST0, port)
                sock.send(b"from the child")
                sock.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0

    with peer(other) as parent:
        listening, port = listener()
        parent.say(port)
        assert listening.accept().receive_to_end() == b"from the child"


def ipv6_listeners_take_ipv6_clients() -> None:
    family = socket.AF_INET6
    listening = RSocket(family=family).bind("::").listen()
    port = listening.name()[1]
    client = RSocket(family=family).connect("::ffff:" + HOST0, port)
    server, address = listening.accept_from()
    assert address == client.name()
    assert address[0] == "::ffff:" + HOST0
    client.send(b"six")
    assert server.receive(3) == b"six"
    for sock in (client, server, listening):
        sock.close()


def polls_mix_all_kinds_of_descriptors() -> None:
    listening, port = listener()
    client = RSocket().connect(HOST0, port)
    server = listening.accept()
    ours, theirs = socket.socketpair()
    asked = [(server.fd, select.POLLIN), (ours.fileno(), select.POLLIN), (-1, select.POLLIN)]
    watch = Stopwatch()
    assert poll(asked, 0.1) == [0, 0, 0]
    assert 0.1 <= watch.elapsed_s < SOON_S
    assert poll(asked, 0) == [0, 0, 0]
    client.send(b"x")
    assert poll(asked, SOON_S)[0] == select.POLLIN
    theirs.send(b"y")
    while poll(asked, SOON_S) != [select.POLLIN, select.POLLIN, 0]:
        pass
    server.receive(1)
    assert poll(asked, SOON_S) == [0, select.POLLIN, 0]
    ours.recv(1)
    threading.Timer(0.05, theirs.send, (b"z",)).start()
    assert poll(asked, SOON_S) == [0, select.POLLIN, 0]
    many = [(server.fd, select.POLLOUT)] * 40 + [(900, select.POLLIN)]
    assert poll(many, SOON_S) == [select.POLLOUT] * 40 + [select.POLLNVAL]
    ours.close()
    theirs.close()
    for sock in (client, server, listening):
        sock.close()


def select_tells_which_are_ready() -> None:
    class Set(ctypes.Structure):
        _fields_ = (("bits", ctypes.c_uint8 * 128),)

        @classmethod
        def of(cls, *fds: int) -> Set:
            made = cls()
            for fd in fds:
                made.bits[fd // 8] |= 1 << fd % 8
            return made

    listening, port = listener()
    client = RSocket().connect(HOST0, port)
    server = listening.accept()
    zero = struct.pack("=qq", 0, 1000)
    top = max(client.fd, server.fd) + 1
    readable, writable = Set.of(server.fd), Set.of(client.fd)
    by = ctypes.byref
    assert library().rselect(top, by(readable), by(writable), None, zero) == 1
    assert bytes(readable) == bytes(Set())
    assert bytes(writable) == bytes(Set.of(client.fd))
    client.send(b"x")
    readable = Set.of(server.fd, client.fd)
    assert library().rselect(top, by(readable), None, None, None) == 1
    assert bytes(readable) == bytes(Set.of(server.fd))
    readable = Set.of(client.fd)
    assert library().rselect(top, by(readable), None, None, zero) == 0
    for sock in (client, server, listening):
        sock.close()


if __name__ == "__main__":
    main(dict(globals()))
