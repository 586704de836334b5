# SPDX-License-Identifier: BSD-3-Clause
"""A host of a fabric, as Fabric.host() returns it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.core.segment import WHY_BYTES, HostInfo, check, text

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric
    from nupa.memory.region import Region
    from nupa.memory.window import Window


#: By `enum nupa_host_state`.
STATES = tuple(text(lib.nupa_host_state_name(state)) for state in range(lib.NUPA_HOST_STATES))
#: Entries of a P_Key table.
PKEYS = 128


def set_state(fabric: Fabric, host: HostInfo, state: str) -> None:
    """Sets the state of a host.  The caller holds the control lock.  LocalError: no such state."""
    if state not in STATES:
        raise LocalError(
            f"no state of a host is {state!r}: choose of {', '.join(STATES)}", errno.EINVAL
        )
    why = ffi.new("char[]", WHY_BYTES)
    rc = lib.nupa_host_state_set(fabric.handle, host.index, STATES.index(state), why, WHY_BYTES)
    check(rc, f"cannot set the state of {host.name}", text(why))


class FabricHost(HostInfo):
    """A HostInfo with its fabric, so that it can map regions."""

    fabric: Fabric

    @classmethod
    def of(cls, fabric: Fabric, host: HostInfo) -> FabricHost:
        found = cls(*host)
        found.fabric = fabric
        return found

    @property
    def pkeys(self) -> list[int]:
        """Its P_Key table up to the last entry that is not 0, with the membership bits."""
        handle = self.fabric.handle
        found = [int(lib.nupa_pkey_at(handle, self.index, i)) for i in range(PKEYS)]
        while found and not found[-1]:
            found.pop()
        return found

    @property
    def control_state(self) -> str:
        """Its state: "ready", "absent", "onboarding", "draining" or "failed"."""
        return STATES[int(lib.nupa_host_state_of(self.fabric.handle, self.index))]

    @property
    def tenant(self) -> str | None:
        """The name of its tenant; None: it has none."""
        # By number: hosts are many, and looking one up by name lists them all.
        number = lib.nupa_host_tenant(self.fabric.handle, self.index)
        if not number:
            return None
        return next((each.name for each in self.fabric.tenants if each.id == number), None)

    def map(self, region: Region, **options: Any) -> Window:
        """Maps a region as this host sees it; *options* are Window's.

        LocalError: the host does not share it (EACCES), or it is gone (ESTALE).
        """
        from nupa.memory.window import Window

        return Window(self.fabric, self, region, **options)
