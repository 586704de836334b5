# SPDX-License-Identifier: BSD-3-Clause
"""Attaching this process to a host: as its RDMA device, or as a queue of its network interface."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.core.segment import WHY_BYTES, check, text

if TYPE_CHECKING:
    from nupa.core.mover import Mover
    from nupa.core.open_fabric import OpenFabric
    from nupa.core.segment import HostInfo


def attach(
    fabric: OpenFabric, host: HostInfo | int | str | None, mover: Mover | None = None
) -> Any:
    """Returns the `struct ibv_context *` of this process on *host*.

    host: its number, its name or an element of fabric.hosts.  None: the host of an earlier
    attachment of this process, else the host with the fewest attachments.
    mover: the only mover for private memory.  None: the best one for each peer.
    Contexts of one process, host and mover share an attachment; lib.nupa_close_device() closes a
    context.
    LocalError: no such host (ENOENT), it is not ready (EHOSTDOWN), the fabric is closed (EBADF).
    FabricError: no slot is free (EUSERS), no room in /dev/shm (ENOSPC), no memory or descriptors.
    """
    if host is None:
        index, where = -1, "any host"
    else:
        found = fabric.host(host) if isinstance(host, int | str) else host
        index, where = found.index, found.name
    why = ffi.new("char[]", WHY_BYTES)
    context = lib.nupa_open_host(fabric.handle, index, mover or lib.NUPA_MOVER_NONE, why, WHY_BYTES)
    if not context:
        check(-ffi.errno, f"cannot open a device on {where}", text(why))
    return context


class NetQueue:
    """The attachments that are queue *number* of hosts' network interfaces: `struct nupa_pump`.

    FabricError: no memory.
    """

    def __init__(self, fabric: OpenFabric, number: int) -> None:
        self.number = number
        self._fabric = fabric
        self._pump = lib.nupa_pump_new(fabric.handle)
        if self._pump == ffi.NULL:
            check(-ffi.errno, "cannot make a pump")

    def attach(self, host: int, tap_fd: int, mtu_bytes: int) -> None:
        """Attaches as this queue of *host*; frames go to and from a copy of *tap_fd*.

        FabricError: no slot or no room; LocalError: another process serves this queue, or the host
        is not ready (EHOSTDOWN).
        """
        why = ffi.new("char[]", WHY_BYTES)
        fd = os.dup(tap_fd)
        rc = lib.nupa_pump_add(self._pump, host, self.number, fd, mtu_bytes, why, WHY_BYTES)
        if rc < 0:
            os.close(fd)
        check(rc, f"cannot serve {self._fabric.host(host).name}", text(why))

    def run(self) -> int | None:
        """Moves frames until stop(): None.  Else the host whose interface is gone.

        After that, run() serves the other hosts.  FabricError with ESTALE: this process was stopped
        for so long that others declared it dead; open the fabric again.
        """
        host = ffi.new("int *")
        rc = lib.nupa_pump_run(self._pump, host)
        if rc == -errno.ENODEV:
            return int(host[0])
        check(rc, "the pump failed")
        return None

    def stop(self) -> None:
        """Makes run() return; from any thread."""
        lib.nupa_pump_stop(self._pump)

    def close(self) -> None:
        """Detaches from all hosts.  run() must have returned."""
        lib.nupa_pump_free(self._pump)
