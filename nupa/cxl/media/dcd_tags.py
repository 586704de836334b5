# SPDX-License-Identifier: BSD-3-Clause
"""Tags of dynamic capacity: their hosts, and the references of the fabric manager (7.6.7.6.7 to
.9)."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from nupa.cxl.function.cci import require
from nupa.cxl.media.dcd import DynamicCapacity
from nupa.cxl.media.extents import NO_TAG, Extent


class TagInfo(NamedTuple):
    """A tag (table 7-78).  *kept*: the fabric manager holds a reference; *accepted* and *offered*
    are hosts."""

    tag: UUID
    kept: bool
    accepted: frozenset[int]
    offered: frozenset[int]


def tags(capacity: DynamicCapacity) -> list[TagInfo]:
    """Returns all tags, in order."""
    accepted: dict[UUID, set[int]] = {tag: set() for tag in capacity.references}
    offered: dict[UUID, set[int]] = {}
    for host in capacity.hosts:
        for extent in host.accepted:
            accepted.setdefault(extent.tag, set()).add(host.number)
        for offer in host.offers:
            for extent in offer:
                offered.setdefault(extent.tag, set()).add(host.number)
    return [
        TagInfo(
            tag,
            tag in capacity.references,
            frozenset(accepted.get(tag, ())),
            frozenset(offered.get(tag, ())),
        )
        for tag in sorted((accepted.keys() | offered.keys()) - {NO_TAG})
    ]


def keep(capacity: DynamicCapacity, tag: UUID) -> None:
    """Adds a reference: the extents of *tag* stay if no host has them.  CommandError: no such
    shared tag."""
    extents = _shared(capacity, tag)
    if tag not in capacity.references:
        capacity.references[tag] = extents
        capacity.generation += 1


def let_go(capacity: DynamicCapacity, tag: UUID) -> None:
    """Removes a reference: the extents are free once no host has them.  CommandError: no such
    shared tag."""
    _shared(capacity, tag)
    capacity.free_up(capacity.references.pop(tag, []))


def _shared(capacity: DynamicCapacity, tag: UUID) -> list[Extent]:
    found = {*capacity.references.get(tag, ())}
    for host in capacity.hosts:
        found |= {extent for extent in host.held() if extent.tag == tag and extent.sequence}
    require(found, why=f"nothing is shared under {tag}")
    return sorted(found, key=lambda extent: extent.sequence)
