# SPDX-License-Identifier: BSD-3-Clause
"""One record of a transfer, as far as a diagram shows it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum


class Way(Enum):
    """Which way a record goes: seen from the transfer's initiator, or from a host's program."""

    REQUEST = "from the initiator to its target"
    RESPONSE = "back"
    POST = "from a program to its device"
    COMPLETE = "from a device to its program"
    TO_POOL = "from a host to pooled memory"
    FROM_POOL = "back from there"
    AT_PORT = "from a host's memory out of its port, or the other way"
    BY_ADDRESS = "from one end to the other, as its addresses say"


@dataclass(slots=True)
class Event:
    """One record.  *name*: what it is; *psn*, *size_bytes*, *address*: None where it has none.

    *fold*: records with the same may be shown as one; None: never.  *identity*: the same for copies
    of it that were seen elsewhere, or that are sent again.  *is_target*: of a queue entry, that it
    is the target's.
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
