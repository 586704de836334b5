# SPDX-License-Identifier: BSD-3-Clause
"""Random changes of the model: tenants, partitions, members and rates come, change and go."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from random import Random

from nupa.fabric import Fabric

from .host import SoakHost

TENANTS = 3
_PARTITIONS = 8
_RATES = (0, 0, 50_000_000, 200_000_000, 1_000_000_000)


class Changes:
    """The one who changes the model.  It remembers nothing: the fabric says how it is."""

    def __init__(self, fabric: Fabric, hosts: list[SoakHost], seed: int) -> None:
        self.made: Counter[str] = Counter()
        self._fabric = fabric
        self._hosts = {host.name: host for host in hosts}
        self._rng = Random(seed)

    def once(self) -> None:
        """Makes one change.  Exchanges of the hosts that it may concern know of it."""
        kind = self._rng.choice((self._join, self._join, self._leave, self._move, self._rate))
        with ExitStack() as stack:
            for host in self._hosts.values():
                stack.enter_context(host.changing())
            done = kind()
        self.made[done] += 1

    def _partition(self) -> str:
        """Returns a partition's name, a new one's now and then."""
        names = [each.name for each in self._fabric.partitions if each.name != "default"]
        if len(names) < 2 or (len(names) < _PARTITIONS and self._rng.random() < 0.3):
            name = f"partition{self._rng.getrandbits(24):06x}"
            tenant = self._rng.choice([each.name for each in self._fabric.tenants])
            self._fabric.partitions.add(name, tenant=tenant)
            return name
        if len(names) == _PARTITIONS and self._rng.random() < 0.3:
            self._fabric.partitions.remove(names.pop(self._rng.randrange(len(names))))
        return self._rng.choice(names)

    def _join(self) -> str:
        partition = self._fabric.partitions.get(self._partition())
        there = {member.name for member in partition.members}
        owner = partition.tenant.name if partition.tenant else None
        able = [
            host for host in self._hosts if host not in there and self._tenant_of(host) == owner
        ]
        if not able:
            return "nothing"
        membership = "full" if self._rng.random() < 0.7 else "limited"
        partition.join(self._rng.choice(able), membership)
        return "join"

    def _leave(self) -> str:
        partition = self._fabric.partitions.get(self._partition())
        if not partition.members:
            return "nothing"
        partition.leave(self._rng.choice(partition.members).name)
        return "leave"

    def _move(self) -> str:
        """Gives a host to another tenant."""
        host = self._rng.choice(list(self._hosts))
        for partition in self._fabric.partitions:
            if partition.name != "default" and host in {each.name for each in partition.members}:
                partition.leave(host)
        old = self._tenant_of(host)
        if old is not None:
            self._fabric.tenants.get(old).release(host)
        self._fabric.tenants.get(
            self._rng.choice([each.name for each in self._fabric.tenants])
        ).assign(host)
        return "move"

    def _rate(self) -> str:
        tenant = self._rng.choice(list(self._fabric.tenants))
        tenant.set(rate=self._rng.choice(_RATES))
        return "rate"

    def _tenant_of(self, host: str) -> str | None:
        return self._fabric.host(host).tenant
