# SPDX-License-Identifier: BSD-3-Clause
"""Channels: who has met whom, and how bulk moves between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nupa.core.mover import Mover

if TYPE_CHECKING:
    from nupa.core.open_fabric import OpenFabric


class Channel(NamedTuple):
    """One direction of a channel: *mover* is how the process at *from_slot* moves bulk to and from
    the memory of the one at *to_slot*."""

    from_slot: int
    to_slot: int
    mover: Mover
    from_host: str
    from_pid: int
    to_host: str
    to_pid: int


def channels(fabric: OpenFabric) -> list[Channel]:
    """The channels that are open between living processes, by slot.

    A channel is made at the first contact of two attachments, each direction for itself.
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
