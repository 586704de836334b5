# SPDX-License-Identifier: BSD-3-Clause
"""The trunk of a fabric that spans machines (csrc/trunk), and what it tells of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.core.segment import WHY_BYTES, check, text

if TYPE_CHECKING:
    from nupa.core.open_fabric import OpenFabric

_STATES = {
    lib.NUPA_MACHINE_CONNECTING: "connecting",
    lib.NUPA_MACHINE_UP: "up",
    lib.NUPA_MACHINE_DOWN: "down",
    lib.NUPA_MACHINE_REFUSED: "refused",
}


class MachineInfo(NamedTuple):
    """A machine as the trunk here sees it.

    state: "connecting" (it was not reached yet), "up", "down" (it was reached before), "refused"
    (it is of another fabric) or "unknown" (no trunk ran here yet); of our own: whether our trunk
    runs.  rtt_ns: between the two trunks; 0: not known.  since_ns: nanoseconds since the epoch; 0:
    not known.  refused: parts of messages that were not obeyed.
    """

    state: str
    own: bool
    first_slot: int
    end_slot: int
    losses: int
    rtt_ns: int
    sent_bytes: int
    sent_messages: int
    received_bytes: int
    received_messages: int
    refused: int
    since_ns: int


def machines(fabric: OpenFabric) -> list[MachineInfo]:
    """Returns the machines of a fabric by number; none: it is of one machine."""
    found = []
    info = ffi.new("struct nupa_machine_info *")
    for number in range(lib.nupa_fabric_n_machines(fabric.handle)):
        check(lib.nupa_fabric_machine(fabric.handle, number, info), f"cannot read {number}")
        counts = [int(getattr(info, name)) for name in MachineInfo._fields[2:]]
        found.append(MachineInfo(_STATES.get(info.state, "unknown"), bool(info.own), *counts))
    return found


def host_machine(fabric: OpenFabric, host: int) -> int:
    """Returns the number of the machine that has the host; 0 where there is no trunk."""
    return check(lib.nupa_fabric_host_machine(fabric.handle, host), "no such host")


class Trunk(Closing):
    """This machine's trunk: `struct nupa_trunk`; it listens, and run() carries messages."""

    def __init__(
        self,
        fabric: OpenFabric,
        listen: tuple[str, int],
        others: Sequence[tuple[str, int]],
        library: str,
    ) -> None:
        """Loads UCX and listens.  *others*: addresses and ports of all machines, by number.

        LocalError: no such library (ENOENT), another trunk runs here (EBUSY), an address is wrong;
        FabricError: the library is no UCX, or the port is taken.
        """
        config = ffi.new("struct nupa_trunk_config *")
        table = ffi.new("struct nupa_trunk_address[]", max(len(others), 1))
        for entry, place in zip([config.listen, *table], [listen, *others], strict=False):
            entry.address, entry.port = place[0].encode(), place[1]
        name = ffi.new("char[]", os.fsencode(library))
        config.machines, config.n_machines, config.library = table, len(others), name
        out = ffi.new("struct nupa_trunk **")
        why = ffi.new("char[]", WHY_BYTES)
        rc = lib.nupa_trunk_open(fabric.handle, config, out, why, WHY_BYTES)
        check(rc, f"no trunk at {listen[0]} port {listen[1]}", text(why))
        self._handle: Any = out[0]

    @property
    def engine(self) -> str:
        """UCX's version, and the path of its library."""
        return text(lib.nupa_trunk_engine(self._handle))

    def run(self) -> None:
        """Carries messages until stop().  FabricError: it cannot."""
        why = ffi.new("char[]", WHY_BYTES)
        check(lib.nupa_trunk_run(self._handle, why, WHY_BYTES), "the trunk failed", text(why))

    def stop(self) -> None:
        """Makes run() return; from any thread."""
        lib.nupa_trunk_stop(self._handle)

    def close(self) -> None:
        """Ends all connections.  run() must have returned."""
        lib.nupa_trunk_close(self._handle)
        self._handle = ffi.NULL
