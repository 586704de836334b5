# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH100, PTH119
"""The fabric that is meant: by --fabric, by NUPA_FABRIC, or because no other is up.

NUPA_FABRIC is a name, or the path of a segment, as `nupa run` sets it for its program.
"""

from __future__ import annotations

import errno
import os

from nupa.base.errors import LocalError
from nupa.core.segment import Segment
from nupa.fabric import registry
from nupa.fabric.registry import DEFAULT_NAME


def known(said: str) -> str:
    """Returns the name of the fabric whose segment is at the path *said*; all else as it is."""
    if "/" not in said:
        return said
    name = os.path.basename(said).split("-", 2)[-1]
    try:
        found = registry.reference(name, os.path.abspath(said))
    except LocalError:  # not a name
        return said
    return name if found == name else said


def told_name() -> str | None:
    """Returns the fabric that NUPA_FABRIC names: its name, or its path if it has no name.  None:
    NUPA_FABRIC is not set."""
    said = os.environ.get("NUPA_FABRIC")
    return known(said) if said else None


def name_of(said: str) -> str:
    """Returns the name of the fabric *said*, a name or a path.  NupaError: no fabric is there."""
    said = known(said)
    if "/" not in said:
        return said
    if not os.path.lexists(said):
        raise missing(said)
    segment = Segment.open(said)
    name = segment.name
    segment.close()
    return name


def default_name() -> str:
    """Returns the name of the fabric to make or to remove where none is named."""
    told = told_name()
    return told if told and "/" not in told else DEFAULT_NAME


def meant_name() -> str:
    """Returns the fabric to use when none is named: NUPA_FABRIC, else "default", else the only one.

    LocalError: several are up.
    """
    for name in registry.names():
        registry.collect(name)
    told = told_name()
    if told is not None:
        return told
    up = [name for name in registry.names() if registry.is_ours(registry.path_of(name))]
    if DEFAULT_NAME in up or not up:
        return DEFAULT_NAME
    if len(up) > 1:
        raise LocalError(
            f"several fabrics are up, {', '.join(up)}: name one with --fabric", errno.EINVAL
        )
    return up[0]


def missing(name: str) -> LocalError:
    """Returns the error of a fabric that is named and not up."""
    up = ", ".join(registry.names()) or "none"
    told = " (NUPA_FABRIC)" if name == told_name() else ""
    where, remedy = "named", f"; `nupa up --fabric {name}` makes it"
    if "/" in name:
        where, remedy = "at", ""
    return LocalError(f"no fabric is {where} {name!r}{told}; up are: {up}{remedy}", errno.ENOENT)
