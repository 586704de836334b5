# SPDX-License-Identifier: BSD-3-Clause
"""Bytes of tenants, which no counter of the fabric has: those of their hosts, as long as theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nupa.fabric.counters import BYTES_PER_WORD

if TYPE_CHECKING:
    from nupa.live.snapshot import Snapshot


class TenantTotals:
    """Sums that only grow, from the first snapshot on.

    A host that changes its tenant brings nothing with it: its bytes count for the tenant that it
    has when they are seen.
    """

    def __init__(self) -> None:
        self._generation = ""
        self._ports: dict[str, tuple[int, int]] = {}
        self._sums: dict[str, list[int]] = {}

    def update(self, snapshot: Snapshot) -> dict[str, tuple[int, int]]:
        """Returns bytes sent and received since the first snapshot, of each tenant there is."""
        fabric = snapshot.fabric
        if snapshot.generation != self._generation:
            self._generation = snapshot.generation
            self._ports.clear()
            self._sums.clear()
        ports = {
            port["name"]: (
                port["counters"]["port_xmit_data"] * BYTES_PER_WORD,
                port["counters"]["port_rcv_data"] * BYTES_PER_WORD,
            )
            for port in fabric["ports"]
        }
        names = {tenant["name"] for tenant in fabric["tenants"]}
        self._sums = {name: self._sums.get(name, [0, 0]) for name in sorted(names)}
        for host in fabric["hosts"]:
            now = ports[host["port"]]
            then = self._ports.get(host["port"], now)
            if (tenant := host.get("tenant")) in names:
                for way in (0, 1):
                    self._sums[tenant][way] += max(now[way] - then[way], 0)
        self._ports = ports
        return {name: (sent, came) for name, (sent, came) in self._sums.items()}
