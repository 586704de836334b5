# SPDX-License-Identifier: BSD-3-Clause
"""Entries of a port's GID table (man 3 ibv_query_gid_ex)."""

from __future__ import annotations

from typing import Any

from nupa._engine import ffi
from nupa.verbs.base import PyverbsObject
from nupa.verbs.base.fields import ReadOnly, table
from nupa.verbs.utils import translate_gid_type
from nupa.verbs.utils.gid import GID


class GIDEntry(PyverbsObject):
    """An entry of a port's GID table.

    subnet_prefix, interface_id: the halves of the GID, big endian memory read in host order.
    """

    def __init__(
        self,
        subnet_prefix: int = 0,
        interface_id: int = 0,
        gid_index: int = 0,
        port_num: int = 0,
        gid_type: int = 0,
        ndev_ifindex: int = 0,
    ) -> None:
        halves = subnet_prefix.to_bytes(8, "little") + interface_id.to_bytes(8, "little")
        values = ((halves,), gid_index, port_num, int(gid_type), ndev_ifindex)
        self._c = ffi.new("struct ibv_gid_entry *", values)

    gid_index = ReadOnly("gid_index")
    port_num = ReadOnly("port_num")
    gid_type = ReadOnly("gid_type")
    ndev_ifindex = ReadOnly("ndev_ifindex")

    @property
    def gid_subnet_prefix(self) -> int:
        return int.from_bytes(bytes(self._c.gid.raw)[:8], "little")

    @property
    def gid_interface_id(self) -> int:
        return int.from_bytes(bytes(self._c.gid.raw)[8:], "little")

    def gid(self) -> GID:
        gid = GID()
        gid._c.raw = bytes(self._c.gid.raw)
        return gid

    def gid_str(self) -> str:
        """Returns the GID as eight words of four hexadecimal digits."""
        return self.gid().gid

    def __str__(self) -> str:
        return table(
            {
                "GID": self.gid_str(),
                "GID Index": self.gid_index,
                "Port number": self.port_num,
                "GID type": translate_gid_type(self.gid_type),
                "Ndev ifindex": self.ndev_ifindex,
            },
            24,
        )


def gid_entry_of(c: Any) -> GIDEntry:
    """Returns a copy of the `struct ibv_gid_entry` *c*."""
    entry = GIDEntry()
    entry._c[0] = c
    return entry
