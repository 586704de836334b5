# SPDX-License-Identifier: BSD-3-Clause
"""Names of hosts, switches, tenants and partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nupa.topology.error import TopologyError

_CONTROL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
NAME_BYTES_MAX = 31  # csrc/segment/layout/limits.h


def check_names(kind: str, names: Iterable[str]) -> None:
    """Raises TopologyError for a name that is too long, unprintable, or there twice."""
    seen: set[str] = set()
    for name in names:
        size = len(name.encode())
        if not 1 <= size <= NAME_BYTES_MAX:
            raise TopologyError(
                f"the {kind} name {name!r} has {size} bytes: names have 1 to {NAME_BYTES_MAX}"
            )
        if not name.isprintable() or "/" in name or " " in name:
            raise TopologyError(
                f"the {kind} name {name!r} has a blank, a slash or an unprintable character"
            )
        if name in seen:
            raise TopologyError(f"the {kind} name {name!r} is used twice: names are unique")
        seen.add(name)


def check_control_names(kind: str, names: Iterable[str]) -> None:
    """Raises TopologyError for a name that a tenant or partition cannot have
    (csrc/segment/control/table.h), or that is there twice."""
    found = tuple(names)
    check_names(kind, found)
    for name in found:
        if not _CONTROL_NAME.fullmatch(name):
            raise TopologyError(
                f"the {kind} name {name!r}: use letters, digits, '_', '.' and '-', first a letter, "
                f"a digit or '_'"
            )
