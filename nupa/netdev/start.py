# SPDX-License-Identifier: BSD-3-Clause
"""Starting a pump's process (nupa/netdev/pump.py), and its answer."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from nupa.base.errors import FabricError, LocalError
from nupa.base.process import Process, end, of_pid, spawn_detached
from nupa.fabric import registry
from nupa.netdev import state

if TYPE_CHECKING:
    from nupa.fabric import Fabric
    from nupa.netdev.namespace import Netns

_PUMP = (sys.executable, "-P", "-m", "nupa.netdev.pump")
# Variables of a user's shell that the pump, which serves all, must not have.
_NOT_FOR_THE_PUMP = ("NUPA_FABRIC", "NUPA_HOST", "NUPA_MOVER", "LD_PRELOAD")
_ANSWER_BYTES_MAX = 4096
_READY_S = 30.0


class PumpPort(NamedTuple):
    """The interface of a host, as a word of the command line: HOST:MTU:FD,FD."""

    host: int
    mtu_bytes: int
    fds: Sequence[int]

    @classmethod
    def parse(cls, word: str) -> PumpPort:
        """Parses a word for argparse.  ValueError: not a port."""
        host, mtu, fds = word.split(":")
        return cls(int(host), int(mtu), [int(fd) for fd in fds.split(",")])

    def __str__(self) -> str:
        return f"{self.host}:{self.mtu_bytes}:{','.join(map(str, self.fds))}"


class StartedPump:
    """A pump, which ends with close() unless go() was called, and with this process."""

    def __init__(self, fabric: Fabric, ports: Sequence[PumpPort], netns: Netns) -> None:
        """Starts the pump and returns before it is ready.

        The namespaces of all its interfaces are gone when *netns* is.  LocalError: *netns* is gone;
        FabricError: the pump did not start.
        """
        folder = os.path.abspath(registry.folder())  # noqa: PTH100
        env = {key: value for key, value in os.environ.items() if key not in _NOT_FOR_THE_PUMP}
        env["NUPA_DIR"] = folder
        argv = [*_PUMP, "--folder", folder, "--fabric", fabric.name]
        argv += ["--segment", os.path.abspath(fabric.path)]  # noqa: PTH100
        argv += ["--generation", fabric.generation]
        fds = [fd for port in ports for fd in port.fds]
        self._fabric = fabric.name
        self._gone = False
        self._ours, theirs = socket.socketpair()
        try:
            with theirs, os.fdopen(state.open_log(fabric.name), "ab") as log:
                argv += ["--parent", str(theirs.fileno())]
                fds.append(theirs.fileno())
                if netns.holder is None:
                    argv += ["--netns", str(netns.inode), netns.path]
                else:
                    holder = netns.holder.open()
                    if holder is None:
                        raise LocalError(f"pid {netns.holder.pid} has ended", errno.ESRCH)
                    argv += ["--holder", str(holder)]
                    fds.append(holder)
                argv += map(str, ports)
                try:
                    pid = spawn_detached(argv, env, fds=fds, output=log.fileno())
                finally:
                    if netns.holder is not None:
                        os.close(fds[-1])
        except BaseException as error:
            self._ours.close()
            if isinstance(error, OSError):
                raise FabricError(f"cannot start a pump: {error}", error.errno or 0) from error
            raise
        # The pid of a zombie, or of no process: wait() will say why.
        self.process = of_pid(pid) or Process(pid, -1)

    def wait(self) -> None:
        """Waits until it is ready.  FabricError says why it is not."""
        self._ours.settimeout(_READY_S)
        try:
            answer = self._ours.recv(_ANSWER_BYTES_MAX).decode(errors="replace")
        except TimeoutError:
            answer = f"error it is not ready after {_READY_S:g} s"
        if answer != "ready":
            why = answer.removeprefix("error ") or state.last_log_line(self._fabric) or "it ended"
            raise FabricError(f"no pump for the fabric {self._fabric!r}: {why}")

    def go(self) -> None:
        """Lets it outlive this process."""
        self._ours.send(b"g")
        self._gone = True

    def close(self) -> None:
        """Ends it, unless go() was called."""
        self._ours.close()
        if not self._gone:
            end(self.process)
