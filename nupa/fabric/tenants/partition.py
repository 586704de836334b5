# SPDX-License-Identifier: BSD-3-Clause
"""Partitions, and their members: hosts, accelerators, CXL devices."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.core.segment import WHY_BYTES, HostInfo, check, text
from nupa.fabric.tenants.tenant import Tenant, name_of, rate_of
from nupa.memory.region import host_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nupa.fabric.fabric import Fabric

DEFAULT_PKEY = 0x7FFF
_PKEY_MASK = 0x7FFF
_KINDS = {"partition": lib.NUPA_PARTITION_PLAIN, "vpod": lib.NUPA_PARTITION_VPOD}
_KIND_NAMES = {number: name for name, number in _KINDS.items()}
_MEMBER_KINDS = {
    "host": lib.NUPA_MEMBER_HOST,
    "accelerator": lib.NUPA_MEMBER_ACCELERATOR,
    "device": lib.NUPA_MEMBER_DEVICE,
}
_MEMBER_KIND_NAMES = {number: name for name, number in _MEMBER_KINDS.items()}
_MEMBERSHIPS = {"limited": 0, "full": 1}


class Member(NamedTuple):
    """A member of a partition.  kind: "host", "accelerator" or "device"; name: of an accelerator
    its number; rate in bytes a second, 0: no limit."""

    kind: str
    name: str
    membership: str = "full"
    rate: int = 0
    service_level: int = 0

    def __str__(self) -> str:
        return self.name if self.kind == "host" else f"{self.kind}:{self.name}"


class Partition:
    """A partition of an open fabric.  Its values are read from the fabric at each use.

    LocalError (ENOENT): it was removed.
    """

    def __init__(self, fabric: Fabric, info: Any) -> None:
        self._fabric = fabric
        self.name = text(info.name)
        #: Without the membership bit: 0x0001 to 0x7fff.
        self.pkey = int(info.pkey)
        #: "partition", or "vpod": UALink's virtual pod.
        self.kind = _KIND_NAMES[info.kind]
        self.tenant_id = int(info.tenant)
        #: Whether a subnet manager made it: P_Key tables have it, the model does not.
        self.managed = bool(info.managed)

    def _read(self) -> Any:
        found = ffi.new("struct nupa_partition *")
        if lib.nupa_partition_get(self._fabric.handle, self.pkey, found) or text(found.name) != (
            self.name
        ):
            raise _missing(self._fabric, self.name)
        return found

    @property
    def tenant(self) -> Tenant | None:
        """Its tenant; None: the fabric itself."""
        return next((each for each in self._fabric.tenants if each.id == self.tenant_id), None)

    @property
    def service_level(self) -> int:
        return int(self._read().service_level)

    @property
    def rate(self) -> int:
        """Bytes a second of all its traffic; 0: no limit."""
        return int(self._read().rate)

    @property
    def members(self) -> list[Member]:
        """Its members: hosts in the order of the fabric, then accelerators and devices."""
        handle = self._fabric.handle
        room = lib.nupa_member_list(handle, self.pkey, ffi.NULL, 0)
        infos = ffi.new("struct nupa_member[]", room)
        found = min(room, lib.nupa_member_list(handle, self.pkey, infos, room))
        return [member_of(info) for info in infos[0:found]]

    def set(self, *, rate: float | str | None = None, service_level: int | None = None) -> None:
        """Sets rate and service level; None: as they are."""
        with self._fabric.control_lock():
            wish = self._read()
            if rate is not None:
                wish.rate = rate_of(rate)
            if service_level is not None:
                wish.service_level = _level(service_level)
            why = ffi.new("char[]", WHY_BYTES)
            rc = lib.nupa_partition_set(self._fabric.handle, wish, why, WHY_BYTES)
            check(rc, f"cannot change partition {self.name}", text(why))

    def join(
        self,
        member: str | int | HostInfo | Member,
        membership: str = "full",
        rate: float | str = 0,
        keep_default: bool = False,
        service_level: int = 0,
    ) -> None:
        """Adds a member, or changes its membership, rate and service level.

        member: a host by name, index or HostInfo; "accelerator:7"; "device:NAME".  A limited member
        reaches full members only.  The first partition of a host takes the place of the default
        one in its P_Key table, unless keep_default.

        LocalError: no such member; the host is not of the partition's tenant (EPERM); the
        accelerator is in another partition (EBUSY).  FabricError: a table is full (ENOSPC).
        """
        wish = self._wish(member)
        if membership not in _MEMBERSHIPS:
            raise LocalError(
                f"no membership is {membership!r}: choose full or limited", errno.EINVAL
            )
        wish.full, wish.rate = _MEMBERSHIPS[membership], rate_of(rate)
        wish.service_level = _level(service_level)
        why = ffi.new("char[]", WHY_BYTES)
        with self._fabric.control_lock():
            self._read()
            rc = lib.nupa_member_join(self._fabric.handle, wish, keep_default, why, WHY_BYTES)
        check(rc, f"cannot add {member} to partition {self.name}", text(why))
        self._tell_windows(wish)

    def leave(self, member: str | int | HostInfo | Member) -> None:
        """Takes a member out.  LocalError: it is none (ENOENT)."""
        why = ffi.new("char[]", WHY_BYTES)
        with self._fabric.control_lock():
            self._read()
            wish = self._wish(member)
            rc = lib.nupa_member_leave(self._fabric.handle, wish, why, WHY_BYTES)
        check(rc, f"cannot take {member} out of partition {self.name}", text(why))
        self._tell_windows(wish)

    def _tell_windows(self, member: Any) -> None:
        """Lets windows on memory of a tag be lost where its tenant has changed."""
        if member.kind == lib.NUPA_MEMBER_DEVICE:
            lib.nupa_region_links_changed(self._fabric.handle)

    def _wish(self, member: str | int | HostInfo | Member) -> Any:
        kind, name = "host", ""
        if isinstance(member, Member):
            kind, name = member.kind, member.name
        elif isinstance(member, str) and ":" in member:
            kind, _, name = member.partition(":")
        if kind not in _MEMBER_KINDS:
            raise LocalError(
                f"no kind of member is {kind!r}: choose of {', '.join(_MEMBER_KINDS)}", errno.EINVAL
            )
        wish = wish_of(kind, name)
        wish.pkey = self.pkey
        if kind == "host":
            plain = name or member
            assert not isinstance(plain, Member)
            wish.index = host_of(self._fabric, plain)
        return wish

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, as `nupa show --json` prints them."""
        tenant = self.tenant
        return {
            "name": self.name,
            "pkey": self.pkey,
            "kind": self.kind,
            "tenant": tenant.name if tenant else None,
            "service_level": self.service_level,
            "rate": self.rate,
            "managed": self.managed,
            "members": [member._asdict() for member in self.members],
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and (self.pkey, self.name) == (other.pkey, other.name)

    def __hash__(self) -> int:
        return hash((self.pkey, self.name))

    def __repr__(self) -> str:
        return f"Partition({self.name!r}, pkey={self.pkey:#06x})"


class Partitions:
    """The partitions of a fabric, by P_Key; `fabric.partitions`.

    They include "default", 0x7fff, and those that a subnet manager made, "pkey-0x0012".

    >>> from nupa.fabric import Fabric
    >>> with Fabric(hosts=2) as fabric:
    ...     blue = fabric.partitions.add("blue", pkey=0x12)
    ...     blue.join("host0")
    ...     blue.join("host1", "limited")
    ...     [f"{pkey:#06x}" for pkey in fabric.host("host1").pkeys]
    ['0x0012']
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def __iter__(self) -> Iterator[Partition]:
        handle = self._fabric.handle
        room = lib.nupa_partition_list(handle, ffi.NULL, 0)
        infos = ffi.new("struct nupa_partition[]", room)
        found = min(room, lib.nupa_partition_list(handle, infos, room))
        return iter([Partition(self._fabric, info) for info in infos[0:found]])

    def __len__(self) -> int:
        return int(lib.nupa_partition_list(self._fabric.handle, ffi.NULL, 0))

    def __contains__(self, which: object) -> bool:
        return any(which in (each.name, each.pkey) for each in self)

    def get(self, which: str | int) -> Partition:
        """Returns the partition of a name, or of a P_Key, its membership bit ignored.

        LocalError: there is none (ENOENT).
        """
        for each in self:
            if each.name == which or (isinstance(which, int) and each.pkey == which & _PKEY_MASK):
                return each
        raise _missing(self._fabric, which)

    def add(
        self,
        name: str,
        *,
        tenant: Tenant | str | None = None,
        pkey: int | None = None,
        service_level: int = 0,
        rate: float | str = 0,
        kind: str = "partition",
    ) -> Partition:
        """Makes a partition without members.

        tenant: only its hosts can join; None: the fabric's own.  pkey: 0x0001 to 0x7ffe; None: the
        lowest free one.  Hosts that have the P_Key in their tables already are members.

        LocalError: name or P_Key are taken (EEXIST) or out of range (EINVAL), no such tenant
        (ENOENT); FabricError: the table is full (ENOSPC, after 1024).
        """
        if kind not in _KINDS:
            raise LocalError(
                f"no kind of partition is {kind!r}: choose of {', '.join(_KINDS)}", errno.EINVAL
            )
        if pkey is not None and not 0 < pkey < DEFAULT_PKEY:
            raise LocalError(f"P_Key {pkey:#x}: choose 0x0001 to 0x7ffe", errno.EINVAL)
        wish = ffi.new("struct nupa_partition *")
        wish.name, wish.pkey, wish.kind = name_of(name), pkey or 0, _KINDS[kind]
        wish.service_level, wish.rate = _level(service_level), rate_of(rate)
        why = ffi.new("char[]", WHY_BYTES)
        with self._fabric.control_lock():
            if tenant is not None:
                wanted = tenant if isinstance(tenant, str) else tenant.name
                wish.tenant = self._fabric.tenants.get(wanted).id
            rc = lib.nupa_partition_add(self._fabric.handle, wish, why, WHY_BYTES)
        wish.pkey = check(rc, f"cannot add partition {name}", text(why))
        return Partition(self._fabric, wish)

    def remove(self, which: str | int) -> None:
        """Removes a partition, by name or P_Key; its members leave.

        LocalError: there is none (ENOENT); the default partition stays (EINVAL).
        """
        why = ffi.new("char[]", WHY_BYTES)
        with self._fabric.control_lock():
            pkey = self.get(which).pkey
            rc = lib.nupa_partition_remove(self._fabric.handle, pkey, why, WHY_BYTES)
        check(rc, f"cannot remove partition {which}", text(why))


def wish_of(kind: str, name: str) -> Any:
    """Returns a `struct nupa_member *` of a kind, with the number of an accelerator or the name of
    a device.  LocalError (EINVAL): it is none."""
    wish = ffi.new("struct nupa_member *")
    wish.kind = _MEMBER_KINDS[kind]
    if kind == "device":
        wish.name = _device_name(name)
    elif kind == "accelerator":
        wish.index = _accelerator(name)
    return wish


def member_of(info: Any) -> Member:
    """Converts a `struct nupa_member`."""
    kind = _MEMBER_KIND_NAMES[info.kind]
    name = str(info.index) if kind == "accelerator" else text(info.name)
    membership = "full" if info.full else "limited"
    return Member(kind, name, membership, int(info.rate), int(info.service_level))


def _level(service_level: int) -> int:
    if not 0 <= service_level < lib.NUPA_SERVICE_LEVELS:
        raise LocalError(f"service level {service_level}: choose 0 to 15", errno.EINVAL)
    return service_level


def _accelerator(name: str) -> int:
    if not (name.isascii() and name.isdecimal() and len(name) <= 9):
        raise LocalError(f"accelerator {name!r}: give its number, 0 to 1023", errno.EINVAL)
    return int(name)


def _device_name(name: str) -> bytes:
    encoded = name.encode(errors="replace")
    if not 1 <= len(encoded) <= 31 or not name.isprintable():
        raise LocalError(f"device {name!r}: give 1 to 31 bytes of text", errno.EINVAL)
    return encoded


def _missing(fabric: Fabric, which: str | int) -> LocalError:
    known = ", ".join(each.name for each in Partitions(fabric))
    shown = f"{which:#06x}" if isinstance(which, int) else repr(which)
    return LocalError(
        f"the fabric {fabric.name!r} has no partition {shown}: its partitions are {known}",
        errno.ENOENT,
    )
