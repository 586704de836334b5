# SPDX-License-Identifier: BSD-3-Clause
"""The fabric's pool: memory that all hosts load from and store to, its regions and quotas."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.core.segment import check
from nupa.memory.region import (
    COHERENCE,
    TAG_BYTES_MAX,
    Owner,
    Region,
    RegionInfo,
    check_region,
    host_of,
    info_of,
    infos,
    owner_of,
    share_words,
    wish_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nupa.core.open_fabric import OpenFabric
    from nupa.core.segment import HostInfo

#: The owner of the memory of a process without an attachment is a pid (csrc/region/pool.c).
_NO_SLOT = 0
_U64_MAX = 2**64 - 1


class PoolMemory:
    """A piece of the pool, made by Fabric.alloc; a context manager that frees it.

    Has the buffer protocol (memoryview(m), numpy.frombuffer(m, …), file.readinto(m)) and slices of
    bytes: m[0:5] = b"hello".  address: its address in this process; len(m): its bytes.  The mapping
    stays as long as any view of it, even after the fabric is closed.  A view of freed memory may
    show another owner's memory.
    """

    _fabric: Any
    _owned: bool

    @property
    def address(self) -> int:
        return ctypes.addressof(self)  # type: ignore[arg-type]

    @property
    def offset(self) -> int:
        """The offset in the pool, in bytes, as a region's pieces have it."""
        return int(lib.nupa_pool_offset(self._fabric, ffi.cast("void *", self.address)))

    def back(self, offset: int, size: int) -> None:
        """Backs a part of a reservation (Pool.reserve) with memory.

        LocalError: no such part; FabricError: no room (ENOSPC).
        """
        if offset < 0 or size < 1 or offset + size > ctypes.sizeof(self):  # type: ignore[arg-type]
            raise LocalError(
                f"{size} bytes at {offset}: not a part of {ctypes.sizeof(self)}",  # type: ignore[arg-type]
                errno.EINVAL,
            )
        rc = lib.nupa_region_back(self._fabric, self.offset + offset, size)
        check(rc, f"cannot have {size} bytes of memory behind the pool")

    def free(self) -> None:
        """Frees the memory.  A second call does nothing.

        LocalError: a region is published over it (EBUSY).
        """
        if not self._owned:
            return
        at = ffi.cast("void *", self.address)
        size = ctypes.sizeof(self)  # type: ignore[arg-type]
        rc = lib.nupa_pool_free(self._fabric, _NO_SLOT, at, size)
        why = "a region is published over it: free that first" if rc == -errno.EBUSY else ""
        check(rc, f"cannot free {size} bytes of the pool", why)
        self._owned = False

    def __enter__(self) -> PoolMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


def allocate(fabric: Any, size_bytes: int, *, backed: bool = True) -> PoolMemory:
    """Allocates zeroed memory of *size_bytes* in the pool of a `struct nupa_fabric *`.

    Not *backed*: see PoolMemory.back.
    LocalError: a size below 1, or several machines share the fabric.
    FabricError: no run of extents is free (ENOMEM), or the file system is full (ENOSPC).
    """
    if size_bytes < 1:
        raise LocalError(f"cannot allocate {size_bytes} bytes: ask for 1 or more", errno.EINVAL)
    out = ffi.new("void **")
    what = f"cannot allocate {size_bytes} bytes of the pool"
    call = lib.nupa_pool_alloc if backed else lib.nupa_pool_reserve
    rc = call(fabric, _NO_SLOT, min(size_bytes, _U64_MAX), out)
    if rc == -errno.EOPNOTSUPP:
        raise LocalError(
            f"{what}: several machines share this fabric, so its memory belongs to an open "
            "device: use its device memory (ibv_alloc_dm, nupa.verbs.DM)",
            errno.EOPNOTSUPP,
        )
    check(rc, what)
    # The buffer protocol of a Python class (__buffer__) came with 3.12.
    kind = type("PoolMemory", (PoolMemory, ctypes.c_char * size_bytes), {})
    memory: Any = kind.from_address(int(ffi.cast("uintptr_t", out[0])))  # type: ignore[attr-defined]
    # A view keeps the object alive, the object keeps the mapping.
    memory._fabric = ffi.gc(lib.nupa_fabric_get(fabric), lib.nupa_fabric_put)
    memory._owned = True
    return memory  # type: ignore[no-any-return]


class Quota(NamedTuple):
    """The limit and the use of the regions that a host owns, in bytes of whole extents."""

    limit: int | None
    used: int


class Leak(NamedTuple):
    """A region that seems unused, its owner, and why it is still there."""

    region: Region
    owner: Owner
    why: str


_TENANT = {
    errno.EACCES: "its tag is a device of another tenant's partition: `nupa partition ls` lists "
    "them; take another tag",
}
_PUBLISH = {
    **_TENANT,
    errno.EINVAL: "the pieces are not whole multiples of the granularity, or are outside the pool",
    errno.EPERM: "the pieces are not pool memory of this process",
}


class Pool:
    """The pool of a fabric, Fabric.pool: regions that hosts share, and quotas.

    >>> from nupa.fabric import Fabric
    >>> with Fabric(hosts=2) as fabric, fabric.pool.alloc(4096, "log", share=["host1"]) as region:
    ...     print(region.owner.host, region.share, region.size)
    host0 ('host1',) 4096
    """

    def __init__(self, fabric: OpenFabric) -> None:
        self._fabric = fabric

    def alloc(
        self,
        size: int,
        tag: str = "",
        share: Iterable[str | int | HostInfo] | str = (),
        *,
        host: str | int | HostInfo | None = None,
        coherence: str = "hardware",
        keep: bool = False,
    ) -> Region:
        """Allocates a zeroed region of *size* bytes.

        host: its owner; None: this process's host under `nupa run`, else the first.
        share: the hosts that may map it, too ("all": each).
        coherence: "hardware"; or "software", which shows whether a program flushes and invalidates
        where it must.

        The region goes with this process; if others share it, it becomes an orphan.  With *keep* it
        belongs to the host itself and stays until it is freed.

        LocalError: no such host or size, past the host's quota (EDQUOT), or the tag is another
        tenant's (EACCES); FabricError: the pool (ENOMEM) or the file system (ENOSPC) has no room.
        """
        fabric, what = self._fabric, f"cannot allocate a region of {size} bytes"
        wish = self._wish(size, tag, share, host, coherence, keep)
        made = ffi.new("struct nupa_region_info *")
        rc = lib.nupa_region_alloc(fabric.handle, wish.slot, wish, made)
        check_region(rc, what, _TENANT.get(-rc, ""))
        return Region(fabric, info_of(made))

    def publish(
        self,
        pieces: Sequence[int],
        size: int,
        tag: str = "",
        share: Iterable[str | int | HostInfo] | str = (),
        *,
        host: str | int | HostInfo | None = None,
        coherence: str = "hardware",
        granularity: int = 0,
    ) -> Region:
        """Makes a region over pool memory that this process has.

        *pieces*: offsets in the pool (PoolMemory.offset), interleaved by *granularity* bytes if
        there are several; *size*: bytes in all.  The region goes with this process, and before its
        memory is freed.

        LocalError: impossible pieces, or not memory of this process (EPERM).
        """
        fabric, what = self._fabric, f"cannot publish {size} bytes of the pool"
        wish = self._wish(size, tag, share, host, coherence, keep=False)
        if not 1 <= len(pieces) <= len(wish.pieces):
            raise LocalError(f"{what}: {len(pieces)} pieces; give 1 to 16", errno.EINVAL)
        wish.ways, wish.granularity = len(pieces), granularity
        for i, piece in enumerate(pieces):
            wish.pieces[i] = piece
        made = ffi.new("struct nupa_region_info *")
        rc = lib.nupa_region_publish(fabric.handle, wish, made)
        check_region(rc, what, _PUBLISH.get(-rc, ""))
        return Region(fabric, info_of(made))

    def reserve(self, size: int) -> PoolMemory:
        """Reserves pool memory without backing, which costs nothing.

        PoolMemory.back, or a window on a region published over it, backs it.  An access without
        backing may raise SIGBUS when the file system is full.
        """
        return allocate(self._fabric.handle, size, backed=False)

    def _wish(
        self,
        size: int,
        tag: str,
        share: Iterable[str | int | HostInfo] | str,
        host: str | int | HostInfo | None,
        coherence: str,
        keep: bool,
    ) -> Any:
        fabric = self._fabric
        if not 1 <= size <= _U64_MAX:
            raise LocalError(f"a region of {size} bytes: ask for 1 or more", errno.EINVAL)
        if coherence not in COHERENCE:
            raise LocalError(
                f"no coherence {coherence!r}: choose {' or '.join(COHERENCE)}", errno.EINVAL
            )
        encoded = tag.encode()
        if len(encoded) > TAG_BYTES_MAX or not tag.isprintable():
            raise LocalError(
                f"the tag {tag!r}: give at most {TAG_BYTES_MAX} bytes of text", errno.EINVAL
            )
        owner = host_of(fabric, self._own_host() if host is None else host)
        wish = wish_of(fabric, owner, keep)
        wish.bytes, wish.tag = size, encoded
        wish.share = share_words(fabric, share, owner, tag)
        wish.coherence = COHERENCE[coherence]
        return wish

    def _own_host(self) -> str | int:
        if os.environ.get("NUPA_FABRIC") == self._fabric.path:
            return os.environ.get("NUPA_HOST") or 0
        return 0

    def infos(self) -> list[RegionInfo]:
        """Lists all regions as they are now, oldest first, after freeing those of dead
        processes."""
        return infos(self._fabric)

    def regions(self) -> list[Region]:
        """Lists all regions, oldest first."""
        return [Region(self._fabric, info) for info in self.infos()]

    def find(self, tag: str | int) -> Region:
        """Returns the region of that tag or id.  LocalError: none (ENOENT), or several (EINVAL)."""
        found = [info for info in self.infos() if tag in (info.tag, info.id)]
        if len(found) == 1:
            return Region(self._fabric, found[0])
        if found:
            ids = ", ".join(f"{info.id:#x}" for info in found)
            raise LocalError(f"{len(found)} regions have the tag {tag!r}: {ids}", errno.EINVAL)
        which = f"{tag:#x}" if isinstance(tag, int) else repr(tag)
        raise LocalError(f"there is no region {which}: `nupa pool ls` lists them", errno.ENOENT)

    def quotas(self) -> dict[str, Quota]:
        """Returns the quotas of all hosts, by name."""
        return {host.name: self.quota(host) for host in self._fabric.hosts}

    def quota(self, host: str | int | HostInfo) -> Quota:
        found = ffi.new("struct nupa_quota *")
        rc = lib.nupa_region_quota(self._fabric.handle, host_of(self._fabric, host), found)
        check_region(rc, "cannot read the quota")
        limit = int(found.limit_bytes)
        return Quota(None if limit == _U64_MAX else limit, int(found.used_bytes))

    def set_quota(self, host: str | int | HostInfo, limit: int | None) -> None:
        """Limits the regions that *host* owns; None: no limit.

        A limit below the present use ends no region.
        """
        if limit is not None and not 0 <= limit < _U64_MAX:
            raise LocalError(f"a quota of {limit} bytes: give 0 or more, or None", errno.EINVAL)
        number = host_of(self._fabric, host)
        limit = _U64_MAX if limit is None else limit
        check_region(
            lib.nupa_region_set_quota(self._fabric.handle, number, limit), "cannot set the quota"
        )

    def leaks(self) -> list[Leak]:
        """Lists regions that seem unused, by owner.

        These are orphans, and kept regions without windows on hosts where no program runs.
        """
        fabric = self._fabric
        used = {slot.host for slot in fabric.processes()}
        found = []
        for info in self.infos():
            if info.orphan:
                why = "its owner has ended, and others share it"
            elif not info.pid and not info.mapped and info.host not in used:
                why = "it is kept, without a window, and nothing runs on its host"
            else:
                continue
            found.append(Leak(Region(fabric, info), owner_of(fabric.hosts, info), why))
        return sorted(found, key=lambda leak: (leak.owner, leak.region.id))
