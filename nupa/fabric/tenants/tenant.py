# SPDX-License-Identifier: BSD-3-Clause
"""Tenants: those who share a fabric, each with hosts, partitions, a rate and quotas."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base import quantity
from nupa.base.errors import LocalError
from nupa.core.segment import WHY_BYTES, HostInfo, check, text
from nupa.memory.region import host_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nupa.fabric.fabric import Fabric
    from nupa.fabric.tenants.partition import Partition

_U64_MAX = (1 << 64) - 1
NAME_BYTES_MAX = 31


class Quotas(NamedTuple):
    """Limits of a tenant, or its use of them: sums over all attachments of its hosts.

    0 as a limit: none.  pool_bytes: of regions that its hosts own, and of pool memory of its
    processes.  Bytes are numbers, or text as byte_count() parses it in Quotas.of().
    """

    qps: int = 0
    mrs: int = 0
    registered_bytes: int = 0
    pool_bytes: int = 0
    attachments: int = 0

    @classmethod
    def of(cls, **limits: int | str) -> Quotas:
        """Returns quotas of numbers or text.  LocalError: no such quota, or not a number.

        >>> Quotas.of(qps=64, pool_bytes="1G")
        Quotas(qps=64, mrs=0, registered_bytes=0, pool_bytes=1073741824, attachments=0)
        """
        unknown = ", ".join(limits.keys() - set(cls._fields))
        if unknown:
            raise LocalError(
                f"no quota is named {unknown}: choose of {', '.join(cls._fields)}", errno.EINVAL
            )
        return cls(**{name: quantity.byte_count(value) for name, value in limits.items()})


NO_QUOTAS = Quotas()


def rate_of(rate: float | str) -> int:
    """Returns bytes a second of a number or text ("10MB/s"); 0: no limit.  LocalError."""
    return quantity.bytes_per_s(rate) if rate else 0


def name_of(name: str) -> bytes:
    """Returns a name as C takes it.  LocalError: it is too long; C checks the rest."""
    encoded = name.encode(errors="replace")
    if len(encoded) > NAME_BYTES_MAX or "\0" in name:
        raise LocalError(
            f"the name {name!r}: give 1 to {NAME_BYTES_MAX} letters, digits, '_', '.' and '-'",
            errno.EINVAL,
        )
    return encoded


class Tenant:
    """A tenant of an open fabric.  Its values are read from the fabric at each use.

    LocalError (ENOENT): it was removed.
    """

    def __init__(self, fabric: Fabric, number: int, name: str) -> None:
        self._fabric = fabric
        self.id = number
        self.name = name

    def _read(self) -> Any:
        found = ffi.new("struct nupa_tenant *")
        if lib.nupa_tenant_get(self._fabric.handle, self.id, found) or text(found.name) != (
            self.name
        ):
            raise _missing(self._fabric, self.name)
        return found

    @property
    def rate(self) -> int:
        """Bytes a second of all its traffic; 0: no limit."""
        return int(self._read().rate)

    @property
    def quotas(self) -> Quotas:
        found = self._read()  # owns the array
        return Quotas(*map(int, found.quota))

    @property
    def used(self) -> Quotas:
        """Its use, of all living attachments of its hosts."""
        found = ffi.new("uint64_t[]", len(Quotas._fields))
        if lib.nupa_tenant_used(self._fabric.handle, self.id, found):
            raise _missing(self._fabric, self.name)
        return Quotas(*map(int, found))

    @property
    def hosts(self) -> list[HostInfo]:
        """Its hosts, in the order of the fabric."""
        handle = self._fabric.handle
        return [
            host
            for host in self._fabric.hosts
            if lib.nupa_host_tenant(handle, host.index) == self.id
        ]

    @property
    def partitions(self) -> list[Partition]:
        """Its partitions, by P_Key."""
        return [each for each in self._fabric.partitions if each.tenant_id == self.id]

    def set(self, *, rate: float | str | None = None, quotas: Quotas | None = None) -> None:
        """Sets the rate and all quotas; None: as they are.

        A quota below the present use takes nothing away, but nothing more is given.
        """
        with self._fabric.control_lock():
            wish = self._read()
            if rate is not None:
                wish.rate = rate_of(rate)
            if quotas is not None:
                wish.quota = _limits(quotas)
            why = ffi.new("char[]", WHY_BYTES)
            rc = lib.nupa_tenant_set(self._fabric.handle, wish, why, WHY_BYTES)
            check(rc, f"cannot change tenant {self.name}", text(why))

    def assign(self, host: str | int | HostInfo) -> None:
        """Gives it a host, which leaves all partitions: join it to the tenant's own.

        LocalError: no such host, or it is another tenant's (EBUSY).
        """
        number = host_of(self._fabric, host)
        with self._fabric.control_lock():
            self._read()
            self._assign(number, self.id)

    def release(self, host: str | int | HostInfo) -> None:
        """Takes a host back; it leaves all partitions but the default one.

        LocalError: the host is not the tenant's (ENOENT).
        """
        number = host_of(self._fabric, host)
        with self._fabric.control_lock():
            self._read()
            if lib.nupa_host_tenant(self._fabric.handle, number) != self.id:
                name = self._fabric.hosts[number].name
                raise LocalError(f"host {name} is not of tenant {self.name}", errno.ENOENT)
            self._assign(number, 0)

    def _assign(self, host: int, tenant: int) -> None:
        why = ffi.new("char[]", WHY_BYTES)
        rc = lib.nupa_tenant_assign(self._fabric.handle, host, tenant, why, WHY_BYTES)
        check(rc, f"cannot change the hosts of tenant {self.name}", text(why))
        # Windows on regions of another tenant are lost.
        lib.nupa_region_links_changed(self._fabric.handle)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, as `nupa show --json` prints them."""
        return {
            "name": self.name,
            "id": self.id,
            "rate": self.rate,
            "quotas": self.quotas._asdict(),
            "used": self.used._asdict(),
            "hosts": [host.name for host in self.hosts],
            "partitions": [each.name for each in self.partitions],
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tenant) and (self.id, self.name) == (other.id, other.name)

    def __hash__(self) -> int:
        return hash((self.id, self.name))

    def __repr__(self) -> str:
        return f"Tenant({self.name!r}, id={self.id})"


class Tenants:
    """The tenants of a fabric, by id; `fabric.tenants`.

    >>> from nupa.fabric import Fabric, Quotas
    >>> with Fabric(hosts=2) as fabric:
    ...     red = fabric.tenants.add("red", rate="1GB/s", quotas=Quotas(qps=64))
    ...     red.assign("host0")
    ...     [(each.name, each.rate, each.quotas.qps) for each in fabric.tenants]
    [('red', 1000000000, 64)]
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def __iter__(self) -> Iterator[Tenant]:
        found = ffi.new("struct nupa_tenant *")
        for number in range(1, lib.nupa_tenant_ids(self._fabric.handle)):
            if lib.nupa_tenant_get(self._fabric.handle, number, found) == 0:
                yield Tenant(self._fabric, number, text(found.name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(each.name == name for each in self)

    def get(self, name: str) -> Tenant:
        """Returns the tenant of that name.  LocalError: there is none (ENOENT)."""
        for each in self:
            if each.name == name:
                return each
        raise _missing(self._fabric, name)

    def of_host(self, host: str | int | HostInfo) -> Tenant | None:
        """Returns the tenant that a host belongs to, None: to none."""
        number = lib.nupa_host_tenant(self._fabric.handle, host_of(self._fabric, host))
        return next((each for each in self if each.id == number), None)

    def add(self, name: str, *, rate: float | str = 0, quotas: Quotas = NO_QUOTAS) -> Tenant:
        """Makes a tenant; it has neither hosts nor partitions yet.

        rate: bytes a second of all its traffic, or "10MB/s"; 0: no limit.
        LocalError: the name is taken (EEXIST) or no name (EINVAL), a value out of range;
        FabricError: the table is full (ENOSPC, after 256), or memory is not coherent (EOPNOTSUPP).
        """
        wish = ffi.new("struct nupa_tenant *")
        wish.name, wish.rate, wish.quota = name_of(name), rate_of(rate), _limits(quotas)
        why = ffi.new("char[]", WHY_BYTES)
        with self._fabric.control_lock():
            rc = lib.nupa_tenant_add(self._fabric.handle, wish, why, WHY_BYTES)
        return Tenant(self._fabric, check(rc, f"cannot add tenant {name}", text(why)), name)

    def remove(self, name: str, force: bool = False) -> None:
        """Removes a tenant.  force: its hosts are released and its partitions removed first.

        LocalError: there is none (ENOENT), or it has hosts or partitions (EBUSY).
        """
        why = ffi.new("char[]", WHY_BYTES)
        with self._fabric.control_lock():
            number = self.get(name).id
            rc = lib.nupa_tenant_remove(self._fabric.handle, number, force, why, WHY_BYTES)
        check(rc, f"cannot remove tenant {name}", text(why))


def _limits(quotas: Quotas) -> tuple[int, ...]:
    for name, limit in quotas._asdict().items():
        if not isinstance(limit, int) or not 0 <= limit <= _U64_MAX:
            raise LocalError(f"the quota {name} is {limit!r}: give a number from 0", errno.EINVAL)
    return tuple(quotas)


def _missing(fabric: Fabric, name: str) -> LocalError:
    known = ", ".join(each.name for each in Tenants(fabric)) or "none"
    return LocalError(
        f"the fabric {fabric.name!r} has no tenant {name!r}: its tenants are {known}", errno.ENOENT
    )
