# SPDX-License-Identifier: BSD-3-Clause
"""Random changes of the model: tenants, partitions, members and rates come, change and go."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from random import Random

from nupa.fabric import Fabric
from nupa.fabric.tenants.partition import Partition

from .host import SoakHost

TENANTS = 3
_PARTITIONS = 2  # of a tenant
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
        kind = self._rng.choice((*[self._join] * 4, self._leave, self._move, self._rate))
        with ExitStack() as stack:
            for host in self._hosts.values():
                stack.enter_context(host.changing())
            done = kind()
        self.made[done] += 1

    def _made(self) -> list[Partition]:
        """Returns the partitions without the default one, which stays as it is."""
        return [each for each in self._fabric.partitions if each.name != "default"]

    def _partitions(self, tenant: str | None) -> list[Partition]:
        """Returns the tenant's partitions; None: those of the fabric."""
        return [
            each for each in self._made() if (each.tenant.name if each.tenant else None) == tenant
        ]

    def _join(self) -> str:
        """Lets a host join one of its tenant's partitions, a new one's now and then."""
        host = self._rng.choice(list(self._hosts))
        tenant = self._tenant_of(host)
        able = [
            each
            for each in self._partitions(tenant)
            if host not in {member.name for member in each.members}
        ]
        if not able:
            if len(self._partitions(tenant)) == _PARTITIONS:
                return "nothing"
            name = f"partition{self._rng.getrandbits(24):06x}"
            able = [self._fabric.partitions.add(name, tenant=tenant)]
        membership = "full" if self._rng.random() < 0.7 else "limited"
        self._rng.choice(able).join(host, membership)
        return "join"

    def _leave(self) -> str:
        able = [each for each in self._made() if each.members]
        if not able:
            return "nothing"
        partition = self._rng.choice(able)
        if self._rng.random() < 0.2:
            for member in partition.members:
                partition.leave(member.name)
            self._fabric.partitions.remove(partition.name)
            return "remove"
        partition.leave(self._rng.choice(partition.members).name)
        return "leave"

    def _move(self) -> str:
        """Gives a host to another tenant."""
        host = self._rng.choice(list(self._hosts))
        for partition in self._made():
            if host in {each.name for each in partition.members}:
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
