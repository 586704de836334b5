# SPDX-License-Identifier: BSD-3-Clause
"""The connection to a guest's agent: a free one of its ports, and its HELLO."""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nupa.base.closing import Closing
from nupa.base.errors import FabricError, LocalError, RemoteError
from nupa.base.ownership import connect_own
from nupa.vm.agent import frames
from nupa.vm.files.place import AGENT_PORTS, MachineFolder, try_lock

if TYPE_CHECKING:
    from nupa.vm.agent.frames import Frame

#: A guest that is up sends HELLO at once; one that is stopped or hangs never does.
WAIT_S = 30.0
# The agent ends the command of a former client before it greets the next one.
_PORT_WAIT_S = 4.0
_READ_BYTES = 1 << 16


class AgentConnection(Closing):
    """A port of a guest's agent, ours until `close`, which ends the command that runs there."""

    def __init__(self, host: str, connection: socket.socket, lock: int) -> None:
        connection.setblocking(False)
        self.host = host
        self.socket = connection
        self.hello: dict[str, str] = {}
        self._lock = lock
        self._reader = frames.FrameReader()

    def close(self) -> None:
        self.socket.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def read(self) -> list[Frame] | None:
        """Returns the frames that have arrived, perhaps none; None: the guest has gone.

        RemoteError: the data are not frames.
        """
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        try:
            return list(self._reader.feed(data)) if data else None
        except RemoteError as error:
            raise RemoteError(f"{self.host}: {error}", error.errno) from error

    def take_hello(self) -> bool:
        """Returns whether the HELLO has arrived; it is `hello` then.

        RemoteError: another frame arrived (EPROTO), or the guest has gone (ECONNRESET).
        """
        found = self.read()
        if found is None:
            raise RemoteError(f"{self.host} has gone", errno.ECONNRESET)
        if not found:
            return False
        if found[0].kind != frames.HELLO or len(found) > 1:
            raise RemoteError(
                f"{self.host}: its agent does not begin with HELLO, but with frames of kind "
                f"{', '.join(str(each.kind) for each in found[:4])}",
                errno.EPROTO,
            )
        self.hello = frames.parse_hello(found[0].payload)
        return True

    def wait_hello(self, timeout_s: float) -> None:
        """Waits for the HELLO.  RemoteError: none came (ETIMEDOUT), and as for take_hello()."""
        until = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        while not poll.poll(max(0.0, until - time.monotonic()) * 1000) or not self.take_hello():
            if time.monotonic() >= until:
                raise RemoteError(
                    f"{self.host} does not answer in {timeout_s:.0f} s", errno.ETIMEDOUT
                )


def try_link(place: MachineFolder, host: str, port: int) -> AgentConnection | None:
    """Connects to a port of the agent; its HELLO is yet to come.  None: the port is in use.

    RemoteError: the guest is dead or not yet up, or its machine was taken down (ECONNREFUSED).
    """
    try:
        lock = try_lock(place.port_lock(host, port))
    except LocalError as error:
        if error.errno != errno.ENOENT:
            raise
        raise RemoteError(
            f"the machine {place.name!r} was taken down", errno.ECONNREFUSED
        ) from error
    if lock is None:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    # connect(2) blocks while a stopped QEMU does not accept.
    patience = struct.pack("ll", *divmod(int(_PORT_WAIT_S * 1_000_000), 1_000_000))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
    try:
        connect_own(connection, place.socket(host, port))
        return AgentConnection(host, connection, lock)
    except LocalError:
        connection.close()
        os.close(lock)
        raise
    except OSError as error:
        connection.close()
        os.close(lock)
        if isinstance(error, BlockingIOError):
            raise RemoteError(
                f"{host} does not accept in {_PORT_WAIT_S:g} s", errno.ETIMEDOUT
            ) from error
        if not isinstance(error, ConnectionRefusedError | FileNotFoundError):
            raise FabricError(f"cannot reach {host}: {error.strerror}", error.errno or 0) from error
        raise RemoteError(
            f"{host} is not up: `nupa vm log {host} --fabric {place.name}` shows its console, "
            f"`nupa vm start {host} --fabric {place.name}` starts it again",
            errno.ECONNREFUSED,
        ) from error


def _given_up(place: MachineFolder, host: str, last: RemoteError, wait_s: float) -> RemoteError:
    if last.errno != errno.ETIMEDOUT:
        return last
    return RemoteError(
        f"{host} did not answer in {wait_s:g} s, it boots or hangs: "
        f"`nupa vm log {host} --fabric {place.name}` shows its console",
        errno.ETIMEDOUT,
    )


def connect(
    place: MachineFolder,
    host: str,
    *,
    wait_s: float = WAIT_S,
    ports: Sequence[int] | None = None,
) -> AgentConnection:
    """Connects to a free port and waits for its HELLO.

    LocalError: all ports are in use (EBUSY); RemoteError: the guest is dead (ECONNREFUSED) or does
    not answer in *wait_s* (ETIMEDOUT).
    """
    until = time.monotonic() + wait_s
    # A random order avoids the port used last, whose agent may still be ending its command.
    order = ports or random.sample(range(AGENT_PORTS), AGENT_PORTS)
    failed: RemoteError | None = None
    while True:
        for port in order:
            left_s = until - time.monotonic()
            if failed is not None and left_s <= 0:
                raise _given_up(place, host, failed, wait_s)
            link = try_link(place, host, port)
            if link is None:
                continue
            try:
                link.wait_hello(min(left_s, _PORT_WAIT_S))
                return link
            except RemoteError as error:
                link.close()
                failed = error
        if failed is None:
            raise LocalError(
                f"{len(order)} commands run in {host} already, it has no more ports: wait for one",
                errno.EBUSY,
            )
