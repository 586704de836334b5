# SPDX-License-Identifier: BSD-3-Clause
"""Attaching this process to a host of a fabric."""

from __future__ import annotations

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
    """The `struct ibv_context *` of this process on *host*: its number, its name or an element of
    fabric.hosts; None: where the process is already, else the host with the fewest attachments.

    mover: None chooses the best for each peer; else only that one moves private memory.  Contexts
    of one process, host and mover share an attachment; lib.nupa_close_device() closes a context.
    LocalError: no such host (ENOENT), the fabric is closed (EBADF); FabricError: no slot is free
    (EUSERS), no room in /dev/shm (ENOSPC), no memory or file descriptors.
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
