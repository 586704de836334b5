# SPDX-License-Identifier: BSD-3-Clause
"""Open channels, and the mover of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nupa.core.mover import Mover

if TYPE_CHECKING:
    from nupa.core.open_fabric import OpenFabric


class Channel(NamedTuple):
    """One direction of a channel.

    *mover*: how the process at *from_slot* accesses the memory of the process at *to_slot*.
    """

    from_slot: int
    to_slot: int
    mover: Mover
    from_host: str
    from_pid: int
    to_host: str
    to_pid: int


def channels(fabric: OpenFabric) -> list[Channel]:
    """Lists the open channels between living processes, by slot.

    Each direction of a channel opens at the first contact of two attachments.
    """
    hosts = fabric.hosts
    return [
        Channel(
            from_slot=source.slot,
            to_slot=target.slot,
            mover=Mover.parse(mover),
            from_host=hosts[source.host].name,
            from_pid=source.pid,
            to_host=hosts[target.host].name,
            to_pid=target.pid,
        )
        for source, target, mover in fabric.contacts()
    ]
