# SPDX-License-Identifier: BSD-3-Clause
"""The levels of a capture: the layers of the stack at which packets are recorded."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from enum import IntEnum

from nupa.base.errors import LocalError


class Level(IntEnum):
    """Numbers in records, as in csrc/capture/expand/expand.h."""

    TLP = 1
    QUEUE = 2
    TRANSPORT = 3
    NET = 4
    CACHE = 5


#: Each level by its name.
LEVELS: dict[str, Level] = {level.name.lower(): level for level in Level}
LEVEL_TEXTS: dict[str, str] = {
    "tlp": "PCIe TLPs, CXL.mem messages",
    "queue": "doorbells, WQEs, CQEs",
    "transport": "InfiniBand packets, as RoCE v2",
    "net": "frames of nupa_net0",
    "cache": "CXL.cache messages of the fast channel",
}
#: Levels whose records are Ethernet frames; the others have NUPA's own link type.
ETHERNET_LEVELS = ("transport", "net")
DEFAULT_LEVELS = ETHERNET_LEVELS


def parse_levels(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the levels that names, or lists of names with commas, say.

    LocalError (EINVAL) for a name that is not a level.

    >>> parse_levels(["net,queue", "net"])
    ('queue', 'net')
    """
    from difflib import get_close_matches  # here: commands start without it

    found = {name for part in names for name in part.split(",")}
    for name in sorted(found - LEVELS.keys()):
        near = get_close_matches(name, LEVELS, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise LocalError(
            f"{name!r} is not a level: levels are {', '.join(LEVELS)}{meant}", errno.EINVAL
        )
    return tuple(level for level in LEVELS if level in found)
