# SPDX-License-Identifier: BSD-3-Clause
"""One record of a transfer, with the fields that a diagram shows."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum


class Way(Enum):
    """The direction of a record, seen from the transfer's initiator or a host's program."""

    REQUEST = "from the initiator to its target"
    RESPONSE = "from the target to the initiator"
    POST = "from a program to its device"
    COMPLETE = "from a device to its program"
    TO_POOL = "from a host to pooled memory"
    FROM_POOL = "from pooled memory to a host"
    AT_PORT = "between a host's memory and its port"
    BY_ADDRESS = "from one end to the other, by its addresses"


@dataclass(slots=True)
class Event:
    """One record.  *psn*, *size_bytes*, *address*: None if it has none.

    *fold*: records with the same key may be shown as one; None: never.  *identity*: the same for
    copies seen at other ports, or sent again.  *is_target*: a queue entry of the target.
    """

    packet: int
    ts_ns: int
    level: str
    name: str
    way: Way
    interface: str
    direction: int
    flags: int
    source: str = ""
    target: str = ""
    host: int = -1
    is_target: bool = False
    psn: int | None = None
    size_bytes: int | None = None
    address: int | None = None
    extra: list[str] = field(default_factory=list)
    fold: Hashable = None
    identity: Hashable = None
    is_error: bool = False
