# SPDX-License-Identifier: BSD-3-Clause
"""An open fabric as verbs, netdev and memory see it: hosts, ports, processes, channels."""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from nupa.base.closing import Closing
from nupa.base.errors import LocalError
from nupa.core.segment import Contact, HostInfo, PortInfo, Segment, SlotInfo


class OpenFabric(Closing):
    """A segment mapped in this process.  nupa.fabric.Fabric makes, finds and removes it."""

    _segment: Segment

    @property
    def handle(self) -> Any:
        """The C `struct nupa_fabric *`.  LocalError once closed."""
        return self._segment.handle

    @property
    def name(self) -> str:
        return self._segment.name

    @property
    def path(self) -> str:
        """The path of the segment; empty for a fabric of this process alone."""
        return self._segment.path

    @property
    def generation(self) -> str:
        """A number that no other fabric has, not even a later one of the same name."""
        return f"{self._segment.generation:016x}"

    @property
    def auto(self) -> bool:
        """Whether `nupa run` made it: such a fabric goes with its last user."""
        return self._segment.auto

    @property
    def hosts(self) -> tuple[HostInfo, ...]:
        return self._segment.hosts()

    @property
    def ports(self) -> tuple[PortInfo, ...]:
        """The ports with their current state."""
        return self._segment.ports()

    def host(self, which: str | int) -> HostInfo:
        """Returns the host of that name, else of that index.  LocalError: no such host (ENOENT)."""
        if isinstance(which, int) and 0 <= which < self._segment.n_hosts:
            return self._segment.host(which)  # alone: there may be 254
        hosts = self.hosts
        for host in hosts:
            if which in (host.name, host.index) or which == str(host.index):
                return host
        known = ", ".join(host.name for host in hosts)
        raise LocalError(
            f"the fabric {self.name!r} has no host {which!r}: its hosts are {known}", errno.ENOENT
        )

    def is_ready(self, host: HostInfo) -> bool:
        """Tells whether a new process may attach to a host."""
        return self._segment.is_ready(host.index)

    def check_ready(self, host: HostInfo) -> None:
        """Raises LocalError (EHOSTDOWN) for a host to which no process may attach."""
        self._segment.check_ready(host.index)

    def control_lock(self) -> AbstractContextManager[None]:
        """Returns the lock to hold while the fabric changes: watches, faults, ports."""
        return nullcontext()

    def processes(self) -> list[SlotInfo]:
        """Lists the attachments of living processes."""
        self._segment.reap()
        # A slot in state reaping bears the number of the process that clears it.
        return [slot for slot in self._segment.slots() if slot.alive and slot.state != "reaping"]

    def evict(self, host: str | int) -> int:
        """Frees the attachments of other kernels' processes on *host*; returns their number.

        For callers that know that the kernel is gone, as `nupa vm` does of a guest.
        """
        return self._segment.evict(self.host(host).index)

    def net_counters(self) -> dict[int, dict[str, int]]:
        """Returns the sums of `struct nupa_net_counters` over the queues of each served interface,
        by host number."""
        sums: dict[int, dict[str, int]] = {}
        for slot in self.processes():
            if slot.net_queue:
                counters = self._segment.net_counters(slot.slot)
                before = sums.get(slot.host, {})
                sums[slot.host] = {key: before.get(key, 0) + n for key, n in counters.items()}
        return sums

    def hw_counters(self) -> dict[int, dict[str, int]]:
        """Returns `struct nupa_hw_counters` by host number, including attachments that are gone.

        `nupa.fabric.counters.HW_NAMES` explains each name.
        """
        return {host.index: self._segment.hw_counters(host.index) for host in self.hosts}

    def contacts(self) -> list[Contact]:
        """Lists the open channels between living processes, by slot."""
        processes, found = self.processes(), []
        for a in processes:
            for b in processes:
                mover = self._segment.mover(a.slot, b.slot) if a is not b else None
                if mover is not None:
                    found.append(Contact(a, b, mover))
        return found
