# SPDX-License-Identifier: BSD-3-Clause
"""Rates as the engine keeps them, and how far they are used (csrc/segment/control/rate.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nupa._engine import ffi, lib

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric

_ROWS_MAX = 256
_SCOPES = {
    lib.NUPA_RATE_TENANT: "tenant",
    lib.NUPA_RATE_PARTITION: "partition",
    lib.NUPA_RATE_MEMBER: "member",
}


class RateUse(NamedTuple):
    """A rate that holds, and its use since it was made.

    scope: tenant, partition or member.  tenant: an id; host: an index; pkey: 15 bits; 0 where the
    scope does not name one.  bytes: payload and headers that were booked.  idle_ns: time in which
    less was asked for, beyond the 3 ms that are made up for.
    """

    scope: str
    tenant: int
    host: int
    pkey: int
    bytes_per_s: int
    bytes: int
    idle_ns: int


def read_rates(fabric: Fabric) -> list[RateUse]:
    """Returns the rates that hold in a fabric, in the order of their rows."""
    rows = ffi.new("struct nupa_rate_info[]", _ROWS_MAX)
    found = lib.nupa_rate_list(fabric.handle, rows, _ROWS_MAX)
    return [
        RateUse(
            _SCOPES[row.scope],
            row.tenant,
            row.host,
            row.pkey,
            row.bytes_per_s,
            row.bytes,
            row.idle_ns,
        )
        for row in rows[0 : min(found, _ROWS_MAX)]
    ]
