# SPDX-License-Identifier: BSD-3-Clause
"""Random changes of tenants and partitions against a small model of the rules."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from nupa.fabric import Fabric, LocalError

HOSTS = 4
TABLE = 128
DEFAULT = 0xFFFF


class Model:
    """The rules, as the docstrings of nupa.fabric.tenants say them."""

    def __init__(self) -> None:
        self.tenants: dict[str, set[int]] = {}
        self.partitions: dict[str, tuple[int, str | None]] = {}
        self.tables = [[DEFAULT] for _ in range(HOSTS)]

    def tenant_of(self, host: int) -> str | None:
        return next((name for name, hosts in self.tenants.items() if host in hosts), None)

    def allowed(self, what: str, tenant: str, partition: str, host: int) -> bool:
        owner = self.tenant_of(host)
        pkey, of = self.partitions.get(partition, (0, None))
        match what:
            case "add tenant":
                return tenant not in self.tenants
            case "remove tenant":
                return tenant in self.tenants
            case "assign":
                return tenant in self.tenants and owner in (None, tenant)
            case "release":
                return tenant in self.tenants and owner == tenant
            case "add":
                return partition not in self.partitions
            case "add for tenant":
                return partition not in self.partitions and tenant in self.tenants
            case "remove":
                return partition in self.partitions
            case "leave":
                return any(entry & 0x7FFF == pkey for entry in self.tables[host] if pkey)
            case _:  # join
                return partition in self.partitions and of in (None, owner)

    def do(self, what: str, tenant: str, partition: str, host: int) -> None:
        match what:
            case "add tenant":
                self.tenants[tenant] = set()
            case "remove tenant":
                for name in [each for each, (_, of) in self.partitions.items() if of == tenant]:
                    self.do("remove", tenant, name, host)
                for each in self.tenants.pop(tenant):
                    self.tables[each] = [DEFAULT]
            case "assign":
                if host not in self.tenants[tenant]:
                    self.tenants[tenant].add(host)
                    self.tables[host] = []
            case "release":
                self.tenants[tenant].remove(host)
                self.tables[host] = [DEFAULT]
            case "add" | "add for tenant":
                taken = {pkey for pkey, _ in self.partitions.values()}
                pkey = next(each for each in range(1, 99) if each not in taken)
                self.partitions[partition] = (pkey, tenant if "for" in what else None)
            case "remove":
                pkey, _ = self.partitions[partition]
                for each in range(HOSTS):
                    self.leave(each, pkey)
                del self.partitions[partition]
            case "leave":
                self.leave(host, self.partitions[partition][0])
            case _:
                self.join(host, self.partitions[partition][0], what)

    def join(self, host: int, pkey: int, what: str) -> None:
        entry = pkey if "limited" in what else pkey | 0x8000
        table = self.tables[host]
        at = next((i for i, each in enumerate(table) if each & 0x7FFF == pkey), None)
        if at is None and table == [DEFAULT] and "keep" not in what:
            at = 0
        if at is None:
            at = table.index(0) if 0 in table else len(table)
        self.tables[host] = [*table[:at], entry, *table[at + 1 :]]

    def leave(self, host: int, pkey: int) -> None:
        table = self.tables[host]
        if not any(each & 0x7FFF == pkey for each in table):
            return
        table = [0 if each & 0x7FFF == pkey else each for each in table]
        while table and not table[-1]:
            table.pop()
        if not table and self.tenant_of(host) is None:
            table = [DEFAULT]
        self.tables[host] = table


OPERATIONS = [
    "add tenant",
    "remove tenant",
    "assign",
    "assign",
    "release",
    "add",
    "add for tenant",
    "remove",
    "leave",
    *("join", "join limited", "join keep") * 3,
]


def do(fabric: Fabric, what: str, tenant: str, partition: str, host: int) -> None:
    match what:
        case "add tenant":
            fabric.tenants.add(tenant)
        case "remove tenant":
            fabric.tenants.remove(tenant, force=True)
        case "assign":
            fabric.tenants.get(tenant).assign(host)
        case "release":
            fabric.tenants.get(tenant).release(host)
        case "add":
            fabric.partitions.add(partition)
        case "add for tenant":
            fabric.partitions.add(partition, tenant=tenant)
        case "remove":
            fabric.partitions.remove(partition)
        case "leave":
            fabric.partitions.get(partition).leave(host)
        case _:
            membership = "limited" if "limited" in what else "full"
            fabric.partitions.get(partition).join(host, membership, keep_default="keep" in what)


def check(fabric: Fabric, model: Model) -> None:
    assert {each.name: {host.index for host in each.hosts} for each in fabric.tenants} == (
        model.tenants
    )
    found = {
        each.name: (each.pkey, each.tenant.name if each.tenant else None)
        for each in fabric.partitions
        if each.name != "default"
    }
    assert found == model.partitions
    assert [fabric.host(i).pkeys for i in range(HOSTS)] == model.tables
    for partition in fabric.partitions:
        assert [(m.name, m.membership) for m in partition.members] == [
            (f"host{i}", "full" if max(entries) & 0x8000 else "limited")
            for i, table in enumerate(model.tables)
            if (entries := [each for each in table if each & 0x7FFF == partition.pkey])
        ]


@pytest.mark.parametrize("seed", range(6))
def test_random_changes(seed: int) -> None:
    rng = random.Random(seed)
    model = Model()
    done = 0
    with Fabric(hosts=HOSTS) as fabric:
        for _ in range(250):
            operation = (
                rng.choice(OPERATIONS),
                rng.choice(["red", "blue"]),
                rng.choice(["one", "two", "three"]),
                rng.randrange(HOSTS),
            )
            if model.allowed(*operation):
                model.do(*operation)
                do(fabric, *operation)
                done += 1
            else:
                with pytest.raises(LocalError):
                    do(fabric, *operation)
            check(fabric, model)
        events = fabric.events.read()
        assert done > 60
        assert len(events) > done / 2
        assert all(b.seq == a.seq + 1 and b.time_ns >= a.time_ns for a, b in pairwise(events))
