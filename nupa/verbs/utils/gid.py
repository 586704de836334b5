# SPDX-License-Identifier: BSD-3-Clause
"""The 128 bit address of a port."""

from __future__ import annotations

from typing import Any

from nupa._engine import ffi
from nupa.verbs.base import PyverbsObject
from nupa.verbs.utils import gid_bytes, gid_text


def read_gid(gid: Any) -> str:
    """Returns the text of a `union ibv_gid`."""
    return gid_text(bytes(gid.raw))


class GID(PyverbsObject):
    """A 128 bit address of a port, as eight words of four hexadecimal digits.

    >>> str(GID("fe80:0000:0000:0000:0000:0000:0000:0001"))
    'fe80:0000:0000:0000:0000:0000:0000:0001'
    """

    def __init__(self, val: str | None = None) -> None:
        self._c = ffi.new("union ibv_gid *")
        if val is not None:
            self.gid = val

    @property
    def gid(self) -> str:
        return read_gid(self._c)

    @gid.setter
    def gid(self, val: str) -> None:
        self._c.raw = gid_bytes(val)

    @property
    def raw(self) -> bytes:
        """The 16 bytes, in network order."""
        return bytes(self._c.raw)

    def __bytes__(self) -> bytes:
        return self.raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GID) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __str__(self) -> str:
        return self.gid

    def __repr__(self) -> str:
        return f"GID({self.gid!r})"
