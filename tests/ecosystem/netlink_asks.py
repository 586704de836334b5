# SPDX-License-Identifier: BSD-3-Clause
"""Asks NETLINK_RDMA by plain sockets, in the ways that programs have.

netlink_asks.py WAY...: runs below `nupa run`; ends with 0, or with the way that failed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

AF_NETLINK, NETLINK_RDMA, SOL_NETLINK = 16, 20, 270
REQUEST, ACK, DUMP = 1, 4, 0x300
ERROR, DONE = 2, 3
# enum rdma_nldev_command, enum rdma_nldev_attr
GET, SET, PORT_GET, SYS_GET, RES_GET, RES_QP_GET, RES_PD_GET = 1, 2, 5, 6, 9, 10, 14
DEV_INDEX, DEV_NAME, PORT_INDEX, LQPN = 1, 2, 3, 21
DEVICE = struct.pack("=HHI", 8, DEV_INDEX, 0)
Message = tuple[int, int, int, bytes]


def rdma(flags: int = 0) -> socket.socket:
    return socket.socket(AF_NETLINK, socket.SOCK_RAW | flags, NETLINK_RDMA)


def request(command: int, flags: int, attributes: bytes = b"", sequence: int = 7) -> bytes:
    head = struct.pack("=IHHII", 16 + len(attributes), 5 << 10 | command, flags, sequence, 0)
    return head + attributes


def parse(data: bytes) -> list[Message]:
    """Returns type, sequence, port id and payload of each message."""
    messages = []
    while data:
        length, kind, _, sequence, port_id = struct.unpack_from("=IHHII", data)
        assert 16 <= length <= len(data)
        messages.append((kind, sequence, port_id, data[16:length]))
        data = data[(length + 3) & ~3 :]
    return messages


def answers(sock: socket.socket) -> list[Message]:
    """Returns what comes up to the first NLMSG_DONE or NLMSG_ERROR."""
    found: list[Message] = []
    while not found or found[-1][0] not in (ERROR, DONE):
        data, source = sock.recvfrom(4096)
        assert source == (0, 0)
        found += parse(data)
    return found


def code(message: Message) -> int:
    value: int = struct.unpack_from("=i", message[3])[0]
    return -value


def asked(sock: socket.socket, command: int, flags: int, attributes: bytes = b"") -> int:
    """Returns the errno that the kernel would answer with, 0 for an acknowledgement."""
    sock.send(request(command, REQUEST | ACK | flags, attributes))
    return code(answers(sock)[-1])


def refused(call: Callable[..., object], *arguments: object) -> int | None:
    """Returns the errno of a call that fails, None of one that does not."""
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return None


def device(sock: socket.socket) -> None:
    sock.send(request(GET, REQUEST | ACK | DUMP))
    got = answers(sock)
    assert [message[0] for message in got] == [5 << 10 | GET, DONE]
    assert got[0][1:3] == (7, sock.getsockname()[0])
    assert b"nupa_rdma0\0" in got[0][3]


def names() -> None:
    """A socket has no port id, then its process' pid; two of a process have two."""
    with rdma() as one, rdma() as two:
        assert one.getsockname() == (0, 0)
        one.bind((0, 0))
        assert one.getsockname() == (os.getpid(), 0)
        two.send(request(SYS_GET, REQUEST))
        assert two.getsockname()[0] not in (0, os.getpid())
        assert parse(two.recv(4096))[0][2] == two.getsockname()[0]
        for taken in (1, os.getpid()):  # as netlink_bind(): it has another, or another has it
            assert refused(two.bind, (taken, 0)) == errno.EINVAL
        with rdma() as three:
            assert refused(three.bind, (os.getpid(), 0)) == errno.EADDRINUSE
            three.bind((4242424242, 0))
            assert three.getsockname() == (4242424242, 0)


def options() -> None:
    with rdma() as sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == AF_NETLINK
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == NETLINK_RDMA
        sock.setsockopt(SOL_NETLINK, 11, 1)  # NETLINK_EXT_ACK
        sock.setsockopt(SOL_NETLINK, 10, 1)  # NETLINK_CAP_ACK
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        sock.connect((0, 0))
        assert sock.getpeername() == (0, 0)
        device(sock)
        again = socket.socket(fileno=os.dup(sock.fileno()))
        assert (again.family, again.proto) == (AF_NETLINK, NETLINK_RDMA)
        device(again)
        again.close()
    # asyncio takes no other type than this one (pyroute2).
    with socket.socket(AF_NETLINK, socket.SOCK_DGRAM, NETLINK_RDMA) as sock:
        assert socket.socket(fileno=os.dup(sock.fileno())).type == socket.SOCK_DGRAM
        device(sock)


def waiting() -> None:
    """poll, epoll, timeouts and O_NONBLOCK are those of a socket."""
    with rdma(socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as sock, select.epoll() as epoll:
        assert not os.get_inheritable(sock.fileno())
        epoll.register(sock, select.EPOLLIN)
        assert epoll.poll(0) == []
        assert refused(sock.recv, 10) == errno.EAGAIN
        sock.send(request(GET, REQUEST | DUMP))
        assert epoll.poll(1) == [(sock.fileno(), select.EPOLLIN)]
        assert select.select([sock], [], [], 1)[0] == [sock]
        answers(sock)
        assert epoll.poll(0) == []


def lengths() -> None:
    """MSG_PEEK and MSG_TRUNC, as pyroute2 and libnl look for a message's length."""
    with rdma() as sock:
        sock.send(request(GET, REQUEST | DUMP))
        whole = sock.recv(4096, socket.MSG_PEEK)
        assert sock.recv(1, socket.MSG_PEEK) == whole[:1]
        size = sock.recv_into(bytearray(4), 4, socket.MSG_PEEK | socket.MSG_TRUNC)
        assert size == len(whole)
        parts = [bytearray(16), bytearray(10)]
        got, _, flags, source = sock.recvmsg_into(parts)
        assert (got, flags, source) == (26, socket.MSG_TRUNC, (0, 0))
        assert b"".join(parts) == whole[:26]
        assert parse(os.read(sock.fileno(), 100))[0][0] == DONE
        os.write(sock.fileno(), request(SYS_GET, REQUEST))
        assert parse(os.read(sock.fileno(), 4096))[0][0] == 5 << 10 | SYS_GET
        sock.sendmsg([request(SYS_GET, REQUEST)[:9], request(SYS_GET, REQUEST)[9:]], [], 0, (0, 0))
        assert parse(sock.recv(4096))[0][0] == 5 << 10 | SYS_GET


def errors() -> None:
    """The errno of what is missing, unknown or refused."""
    with rdma() as sock:
        for command, flags, attributes, wanted in [
            (SYS_GET, 0, b"", 0),
            (SYS_GET, DUMP, b"", errno.EINVAL),
            (GET, 0, b"", errno.EINVAL),
            (GET, 0, struct.pack("=HHI", 8, DEV_INDEX, 1), errno.EINVAL),
            (GET, 0, struct.pack("=HHB", 5, DEV_INDEX, 0), errno.EINVAL),
            (PORT_GET, 0, DEVICE + struct.pack("=HHI", 8, PORT_INDEX, 2), errno.EINVAL),
            (PORT_GET, 0, DEVICE + struct.pack("=HHI", 8, PORT_INDEX, 1), 0),
            (RES_QP_GET, 0, DEVICE + struct.pack("=HHI", 8, LQPN, 5), errno.ENOENT),
            (RES_QP_GET, 0, DEVICE, errno.EINVAL),
            (RES_QP_GET, DUMP, b"", errno.EINVAL),
            (RES_QP_GET, DUMP, DEVICE, 0),
            *((each, 0, DEVICE, errno.EOPNOTSUPP) for each in (SET, 3, 4, 7, 16, 18)),
            (15, 0, DEVICE, errno.ENOENT),  # GET_CHARDEV
            (1000, 0, b"", errno.EINVAL),
        ]:
            assert asked(sock, command, flags, attributes) == wanted, (command, flags)
        sock.send(struct.pack("=IHHII", 16, 2 << 10, REQUEST, 1, 0))  # RDMA_NL_IWCM
        assert code(answers(sock)[-1]) == errno.EINVAL
        question = request(SET, REQUEST, DEVICE)
        sock.send(question)
        assert answers(sock)[0][3][4:] == question
        assert sock.send(bytes(4096)) == 4096
        for too_long in (4097, 100000):
            assert refused(sock.send, bytes(too_long)) == errno.EMSGSIZE
        to_another = refused(sock.sendto, request(SYS_GET, REQUEST), (77, 0))
        assert to_another == errno.ECONNREFUSED
        device(sock)


def descriptors() -> None:
    """Closed and used again, duplicated, inherited by a child."""
    before = set(Path("/proc/self/fd").iterdir())
    for _ in range(20):
        with rdma() as sock:
            number = sock.fileno()
            device(sock)
        read, write = os.pipe()
        assert number in (read, write)
        os.write(write, b"pipe")
        assert os.read(read, 10) == b"pipe"
        os.close(read)
        os.close(write)
    with rdma() as sock:
        copy = socket.socket(fileno=os.dup2(sock.fileno(), 100))
        sock.send(request(GET, REQUEST | DUMP))
        assert answers(copy)[-1][0] == DONE
        child = os.fork()
        if child == 0:
            device(copy)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        copy.close()
        device(sock)
    assert set(Path("/proc/self/fd").iterdir()) == before


def threads() -> None:
    """Threads with a socket each, and threads that share one."""
    failed: list[BaseException] = []

    def own() -> None:
        try:
            for _ in range(50):
                with rdma() as sock:
                    device(sock)
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=own) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed, failed[0]
    with rdma() as shared:
        for _ in range(100):
            shared.send(request(SYS_GET, REQUEST))
        got: list[bytes] = []

        def take() -> None:
            for _ in range(25):
                got.append(shared.recv(4096))

        workers = [threading.Thread(target=take) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(got) == 100
        assert all(parse(each)[0][0] == 5 << 10 | SYS_GET for each in got)


def overrun() -> None:
    """A program that asks and never reads: ENOBUFS, and what was queued is whole."""
    with rdma(socket.SOCK_NONBLOCK) as sock:
        failed = None
        while failed is None:
            failed = refused(sock.send, request(GET, REQUEST | ACK | DUMP))
        assert failed == errno.ENOBUFS
        with contextlib.suppress(BlockingIOError):
            while True:
                parse(sock.recv(4096))
        device(sock)


def nonsense() -> None:
    """Random requests, some of them nearly right: each is answered or ignored, none harms."""
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    chance = random.Random(seed)
    with rdma(socket.SOCK_NONBLOCK) as sock:
        for _ in range(3000):
            attributes = b"".join(
                struct.pack("=HH", chance.choice([0, 3, 4, 5, 8, 12, 65535]), chance.randrange(90))
                + chance.randbytes(chance.randrange(9))
                for _ in range(chance.randrange(6))
            )
            data = request(
                chance.randrange(32),
                chance.choice([REQUEST, REQUEST | DUMP, chance.randrange(65536)]),
                chance.choice([b"", DEVICE]) + attributes,
            )
            changed = bytearray(data)
            for _ in range(chance.randrange(3)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            sock.send(bytes(changed[: chance.randrange(len(changed) + 1)]) or b"\0")
            with contextlib.suppress(BlockingIOError):
                while True:
                    parse(sock.recv(8192))
        device(sock)


def others() -> None:
    """Other sockets of netlink are the kernel's; so is everything after execve."""
    with socket.socket(AF_NETLINK, socket.SOCK_RAW, 0) as route:
        route.bind((0, 0))
        route.send(struct.pack("=IHHIIBxxx", 20, 18, REQUEST | DUMP, 1, 0, 0))  # RTM_GETLINK
        assert b"lo\0" in route.recv(65536)
    with rdma() as sock:
        device(sock)
        subprocess.run(["true"], check=True, pass_fds=[sock.fileno()])


WAYS: list[Callable[[], None]] = [
    names,
    options,
    waiting,
    lengths,
    errors,
    descriptors,
    threads,
    overrun,
    nonsense,
    others,
]


def main() -> None:
    for way in WAYS:
        if way.__name__ in sys.argv[1:]:
            way()


main()
