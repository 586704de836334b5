# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH100, PTH118
"""The hosts of a fabric that are this machine's."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from nupa.base.errors import LocalError

if TYPE_CHECKING:
    from nupa.fabric import Fabric


def own_hosts(fabric: Fabric) -> tuple[str, ...]:
    """Returns their names; empty: no trunk is here, and all hosts are this machine's.

    FabricError: the state of the trunk is damaged.
    """
    head, segment = os.path.split(os.path.abspath(fabric.path))
    # Its state's file, without an import: most fabrics have none.
    if not os.path.lexists(os.path.join(head, f".{segment}.trunk")):
        return ()
    from nupa.trunk import state

    up = state.load(fabric.name)
    if up is None or up.generation != fabric.generation:
        return ()
    return up.own().hosts


def check_own(fabric: Fabric, host: str) -> None:
    """Raises LocalError (EREMOTE) for a host that another machine has."""
    own = own_hosts(fabric)
    if not own or host in own:
        return
    from nupa.trunk import state

    up = state.load_up(fabric.name)
    there = up.machine_of(host)
    where = "another machine" if there is None else f"the machine {there.name} ({there.address})"
    raise LocalError(
        f"{host} of {fabric.name!r} is on {where}: run it there; the hosts here, on {up.machine}, "
        f"are {', '.join(own)}",
        errno.EREMOTE,
    )
