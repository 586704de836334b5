# SPDX-License-Identifier: BSD-3-Clause
"""rsockets by ctypes, and a peer process on the fabric's other host.  For the scripts beside this.

The library is loaded at the first call: a process that forks before has two that are attached
each for itself.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import select
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SOL_RDMA = 0x10000
RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE, RDMA_ROUTE = range(5)
HOST0, HOST1 = "10.0.0.1", "10.0.0.2"
SOON_S = 10.0  # by then everything has happened, on a busy machine too


class PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_SIZED = {
    *("rsend", "rsendto", "rsendmsg", "rwrite", "rwritev", "riomap", "riowrite"),
    *("rrecv", "rrecvfrom", "rrecvmsg", "rread", "rreadv"),
}


@functools.cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL("librdmacm.so.1", use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Returns the result of one function; OSError with its errno if that is -1."""
    function = getattr(library(), name)
    function.restype = ctypes.c_ssize_t if name in _SIZED else ctypes.c_int
    result: int = function(*arguments)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def pack_address(host: str, port: int) -> bytes:
    if ":" in host:
        packed = socket.inet_pton(socket.AF_INET6, host)
        return struct.pack("=H", socket.AF_INET6) + struct.pack(">HI", port, 0) + packed + bytes(4)
    packed = socket.inet_aton(host)
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + packed + bytes(8)


def unpack_address(raw: bytes) -> tuple[str, int]:
    family, port = struct.unpack("=H", raw[:2])[0], struct.unpack(">H", raw[2:4])[0]
    if family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, raw[8:24]), port
    return socket.inet_ntoa(raw[4:8]), port


class RSocket:
    """An rsocket with the methods of socket.socket."""

    def __init__(
        self,
        kind: int = socket.SOCK_STREAM,
        family: int = socket.AF_INET,
        fd: int | None = None,
    ) -> None:
        self.family = family
        self.kind = kind
        self.fd = call("rsocket", family, kind, 0) if fd is None else fd

    def bind(self, host: str, port: int = 0) -> RSocket:
        address = pack_address(host, port)
        call("rbind", self.fd, address, len(address))
        return self

    def listen(self, backlog: int = 16) -> RSocket:
        call("rlisten", self.fd, backlog)
        return self

    def accept(self) -> RSocket:
        return RSocket(self.kind, self.family, call("raccept", self.fd, None, None))

    def accept_from(self) -> tuple[RSocket, tuple[str, int]]:
        raw, length = ctypes.create_string_buffer(128), ctypes.c_uint(128)
        fd = call("raccept", self.fd, raw, ctypes.byref(length))
        return RSocket(self.kind, self.family, fd), unpack_address(raw.raw[: length.value])

    def connect(self, host: str, port: int) -> RSocket:
        address = pack_address(host, port)
        call("rconnect", self.fd, address, len(address))
        return self

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        raw = bytes(data)
        return call("rsend", self.fd, raw, ctypes.c_size_t(len(raw)), flags)

    def send_all(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            at += self.send(data[at:])

    def send_to(self, data: bytes, host: str, port: int, flags: int = 0) -> int:
        to = pack_address(host, port)
        return call("rsendto", self.fd, data, ctypes.c_size_t(len(data)), flags, to, len(to))

    def receive(self, most: int, flags: int = 0) -> bytes:
        buffer = ctypes.create_string_buffer(most)
        count = call("rrecv", self.fd, buffer, ctypes.c_size_t(most), flags)
        return buffer.raw[:count]

    def receive_from(self, most: int, flags: int = 0) -> tuple[bytes, tuple[str, int]]:
        buffer, raw = ctypes.create_string_buffer(most), ctypes.create_string_buffer(128)
        length = ctypes.c_uint(128)
        size = ctypes.c_size_t(most)
        count = call("rrecvfrom", self.fd, buffer, size, flags, raw, ctypes.byref(length))
        return buffer.raw[: min(count, most)], unpack_address(raw.raw[: length.value])

    def receive_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.receive(count - len(data))
            assert piece, f"the stream ended after {len(data)} of {count} bytes"
            data += piece
        return bytes(data)

    def receive_to_end(self, most: int = 65536) -> bytes:
        data = bytearray()
        while piece := self.receive(most):
            data += piece
        return bytes(data)

    def shutdown(self, how: int) -> None:
        call("rshutdown", self.fd, how)

    def close(self) -> None:
        call("rclose", self.fd)

    def set_nonblocking(self, on: bool = True) -> None:
        call("rfcntl", self.fd, 4, os.O_NONBLOCK if on else 0)  # F_SETFL

    def set_option(self, level: int, name: int, value: int | bytes) -> None:
        raw = struct.pack("=i", value) if isinstance(value, int) else value
        call("rsetsockopt", self.fd, level, name, raw, len(raw))

    def option_bytes(self, level: int, name: int, most: int = 64) -> bytes:
        raw, length = ctypes.create_string_buffer(most), ctypes.c_uint(most)
        call("rgetsockopt", self.fd, level, name, raw, ctypes.byref(length))
        return raw.raw[: length.value]

    def option(self, level: int, name: int) -> int:
        value: int = struct.unpack("=i", self.option_bytes(level, name))[0]
        return value

    @property
    def error(self) -> int:
        return self.option(socket.SOL_SOCKET, socket.SO_ERROR)

    def name(self, function: str = "rgetsockname") -> tuple[str, int]:
        raw, length = ctypes.create_string_buffer(128), ctypes.c_uint(128)
        call(function, self.fd, raw, ctypes.byref(length))
        return unpack_address(raw.raw[: length.value])

    def poll(self, events: int, timeout_s: float = SOON_S) -> int:
        """Returns its revents; 0 after the timeout."""
        return poll([(self.fd, events)], timeout_s)[0]


def poll(asked: list[tuple[int, int]], timeout_s: float) -> list[int]:
    """Returns the revents of each by rpoll; milliseconds below zero wait for ever."""
    fds = (PollFd * len(asked))(*(PollFd(fd, events, 0) for fd, events in asked))
    count = call("rpoll", fds, len(asked), int(timeout_s * 1000))
    revents: list[int] = [fd.revents for fd in fds]
    assert count == sum(1 for value in revents if value)
    return revents


def expect_errno(error: int, function: Callable[..., object], *arguments: object) -> None:
    """Checks that *function* fails with that errno."""
    try:
        found = f"result {function(*arguments)!r}"
    except OSError as raised:
        found = errno.errorcode[raised.errno or 0]
    assert found == errno.errorcode[error]


class Line:
    """An ordinary socket to the peer process, for words that are not the test's matter."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.settimeout(3 * SOON_S)

    def say(self, word: object = "") -> None:
        self._end.sendall(f"{word}\n".encode())

    def hear(self) -> str:
        word = bytearray()
        while not word.endswith(b"\n"):
            piece = self._end.recv(1)
            assert piece, "the peer process has ended"
            word += piece
        return word[:-1].decode()

    @property
    def fd(self) -> int:
        return self._end.fileno()


class Peer(Line):
    """The other process."""

    def __init__(self, end: socket.socket, pid: int) -> None:
        super().__init__(end)
        self.pid = pid
        self.status = 0

    def wait(self, status: int = 0) -> None:
        """Waits until it ends, as expected: os.waitpid's status."""
        assert os.waitpid(self.pid, 0)[1] == status
        self.pid = 0

    def has_ended(self, timeout_s: float) -> bool:
        pidfd = os.pidfd_open(self.pid)
        try:
            return bool(select.select([pidfd], [], [], timeout_s)[0])
        finally:
            os.close(pidfd)


@contextmanager
def peer(function: Callable[..., None], *arguments: object) -> Iterator[Peer]:
    """Yields *function*(line, *arguments) in a process on host1; it has to end well."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        os.environ["NUPA_HOST"] = "host1"
        code = 1
        try:
            function(Line(theirs), *arguments)
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        ctypes.CDLL(None).exit(code)  # with what libraries do at exit, without our frames
    theirs.close()
    other = Peer(ours, pid)
    yield other
    if other.pid:
        other.wait()
    ours.close()


def listener(host: str = HOST0, backlog: int = 16) -> tuple[RSocket, int]:
    """Returns a listening socket and its port."""
    listening = RSocket().bind(host).listen(backlog)
    return listening, listening.name()[1]


@contextmanager
def connection(function: Callable[..., None], *arguments: object) -> Iterator[RSocket]:
    """Ours of a connection of which *function*(socket, line, ...) in a peer process has the other
    end."""

    def connect(line: Line) -> None:
        function(RSocket().connect(HOST0, int(line.hear())), line, *arguments)

    with peer(connect) as other:
        listening, port = listener()
        other.say(port)
        ours = listening.accept()
        ours.peer = other  # type: ignore[attr-defined]
        yield ours
        ours.close()
        listening.close()


class Stopwatch:
    def __init__(self) -> None:
        self._start_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start_s


def main(scenarios: dict[str, object]) -> None:
    """Runs the function that the command line names."""
    function = scenarios[sys.argv[1]]
    assert callable(function)
    function()
