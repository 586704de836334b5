# SPDX-License-Identifier: BSD-3-Clause
"""Starting the trunk's process (nupa/trunk/process.py), and its answer."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nupa.base.errors import FabricError
from nupa.base.process import Process, end, of_pid, spawn_detached
from nupa.fabric import registry
from nupa.trunk import state

if TYPE_CHECKING:
    from nupa.fabric import Fabric
    from nupa.trunk.cluster import Cluster, Machine

_PROCESS = (sys.executable, "-P", "-m", "nupa.trunk.process")
#: The user's other variables may lead UCX to our libraries, or to others' (LD_LIBRARY_PATH).
_ENVIRONMENT = ("HOME", "LANG", "LC_ALL", "NUPA_UID", "PATH", "PYTHONPATH", "TMPDIR", "USER")
_UCX = "UCX_"
_ANSWER_BYTES_MAX = 4096
_READY_S = 60.0


def environment(env: Mapping[str, str], cluster: Cluster) -> dict[str, str]:
    """Returns the environment of the trunk's process: a few variables of *env*, UCX's own, and what
    the cluster file sets."""
    found = {
        key: value for key, value in env.items() if key in _ENVIRONMENT or key.startswith(_UCX)
    }
    # A trunk that was killed leaves connections in TIME_WAIT, and the next one listens again.
    found["UCX_CM_REUSEADDR"] = "y"
    found["UCX_TLS"] = cluster.trunk.transports
    if cluster.trunk.devices:
        found["UCX_NET_DEVICES"] = cluster.trunk.devices
    found["NUPA_DIR"] = os.path.abspath(registry.folder())  # noqa: PTH100
    return found


class StartedTrunk:
    """A trunk's process, which ends with close() unless go() was called, and with this process.

    *attached*: it also ends with this process after go(), and takes this machine's part away.
    """

    def __init__(
        self, fabric: Fabric, cluster: Cluster, machine: Machine, *, attached: bool = False
    ) -> None:
        """Starts it and returns before it is ready.  FabricError: it did not start."""
        env = environment(os.environ, cluster)
        argv = [*_PROCESS, "--folder", env["NUPA_DIR"], "--fabric", fabric.name]
        argv += ["--segment", os.path.abspath(fabric.path)]  # noqa: PTH100
        argv += ["--generation", fabric.generation, "--machine", machine.name]
        argv += ["--machines", json.dumps([each._asdict() for each in cluster.machines])]
        argv += ["--library", cluster.trunk.library]
        self._fabric = fabric.name
        self._gone = False
        self._ours, theirs = socket.socketpair()
        try:
            with theirs, os.fdopen(state.open_log(fabric.name), "ab") as log:
                argv += ["--parent", str(theirs.fileno())]
                argv += ["--attached"] if attached else []
                pid = spawn_detached(argv, env, fds=[theirs.fileno()], output=log.fileno())
        except BaseException as error:
            self._ours.close()
            if isinstance(error, OSError):
                raise FabricError(f"cannot start a trunk: {error}", error.errno or 0) from error
            raise
        # The pid of a zombie, or of no process: wait() will say why.
        self.process = of_pid(pid) or Process(pid, 1)

    def wait(self) -> str:
        """Waits until it listens; returns UCX's version and path.  FabricError says why it does
        not."""
        self._ours.settimeout(_READY_S)
        try:
            answer = self._ours.recv(_ANSWER_BYTES_MAX).decode(errors="replace")
        except TimeoutError:
            answer = f"error it is not ready after {_READY_S:g} s"
        except ConnectionResetError:
            answer = ""
        said, _, rest = answer.partition(" ")
        if said != "ready":
            why = rest or state.last_log_line(self._fabric) or "it ended"
            raise FabricError(f"no trunk for the fabric {self._fabric!r}: {why}")
        return rest

    def go(self) -> None:
        """Lets it outlive this process, unless it is attached."""
        self._ours.send(b"g")
        self._gone = True

    def watch(self) -> None:
        """Waits until an attached one has ended."""
        self._ours.settimeout(None)
        while self._ours.recv(_ANSWER_BYTES_MAX):
            pass

    def close(self) -> None:
        """Ends it, unless go() was called; an attached one takes the part away."""
        self._ours.close()
        if not self._gone:
            end(self.process)
