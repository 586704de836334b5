# SPDX-License-Identifier: BSD-3-Clause
"""Pool regions, which hosts share: rows of the segment's table (csrc/region/region.h) as
objects."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.errors import FabricError, LocalError, RemoteError
from nupa.base.process import say
from nupa.core.segment import check, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nupa.core.open_fabric import OpenFabric
    from nupa.core.segment import HostInfo

#: Bytes of a tag in UTF-8.
TAG_BYTES_MAX = 31
COHERENCE = {"hardware": lib.NUPA_COHERENT_HARDWARE, "software": lib.NUPA_COHERENT_SOFTWARE}
_COHERENCE_NAMES = {value: name for name, value in COHERENCE.items()}
_WORD_BITS = 64


class Owner(NamedTuple):
    """A region's owner: a process on a host, or with pid 0 the host, which keeps the region."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"{self.host} (pid {self.pid})" if self.pid else self.host


class RegionInfo(NamedTuple):
    """A snapshot of a region."""

    id: int
    tag: str
    size: int
    host: int  # its owner, by index
    pid: int  # 0: the host itself
    slot: int  # the owner's attachment; 0: none
    share: tuple[int, ...]  # hosts that may map it, beside the owner
    coherence: str  # "hardware" or "software"
    ways: int
    granularity: int  # bytes; 0 in one piece
    pieces: tuple[int, ...]  # offsets in the pool, of size / ways bytes each
    mapped: int  # windows
    published: bool  # its memory is that of a device of the CXL model
    orphan: bool  # its owner is dead, and others share it
    revoked: bool
    home: int  # the host at whose switch the memory is


class Region:
    """A part of the pool that hosts share, made by Pool.alloc; a context manager that frees it.

    These never change: tag, size (bytes), coherence ("hardware", "software"), ways, granularity and
    pieces.  These are read each time: owner, share, mapped, orphan and revoked.  LocalError
    (ESTALE): the region is gone.
    """

    def __init__(self, fabric: OpenFabric, info: RegionInfo) -> None:
        self.fabric = fabric
        self.id = info.id
        self.tag = info.tag
        self.size = info.size
        self.coherence = info.coherence
        self.ways = info.ways
        self.granularity = info.granularity
        self.pieces = info.pieces
        self.published = info.published
        self._found = info

    def __repr__(self) -> str:
        return f"<Region {self.id:#x} {self.tag!r} of {self.size} bytes>"

    def __len__(self) -> int:
        return self.size

    def as_dict(self) -> dict[str, Any]:
        """Returns its state when it was made or found, as plain values for --json."""
        return as_dict(self.fabric, self._found)

    def info(self) -> RegionInfo:
        """Returns its state now.  LocalError (ESTALE): it is gone."""
        found = ffi.new("struct nupa_region_info *")
        self._check(lib.nupa_region_find(self.fabric.handle, self.id, found), "look at")
        return info_of(found)

    @property
    def owner(self) -> Owner:
        return owner_of(self.fabric.hosts, self.info())

    @property
    def share(self) -> tuple[str, ...]:
        """The names of the hosts that may map it, beside the owner."""
        hosts = self.fabric.hosts
        return tuple(hosts[host].name for host in self.info().share)

    @share.setter
    def share(self, hosts: Iterable[str | int | HostInfo] | str) -> None:
        """Raises LocalError (EBUSY) if a host that has a window would lose it."""
        info = self.info()
        words = ffi.new("uint64_t[4]", share_words(self.fabric, hosts, info.host, info.tag))
        rc = lib.nupa_region_share(self.fabric.handle, self.id, words)
        self._check(rc, "share", self._has_windows(rc, "close those of hosts that would lose it"))

    @property
    def mapped(self) -> int:
        """The number of windows, in all processes."""
        return self.info().mapped

    @property
    def orphan(self) -> bool:
        """Whether its owner is dead and others share it."""
        return self.info().orphan

    @property
    def revoked(self) -> bool:
        """Whether it is gone, or goes with its last window."""
        try:
            return self.info().revoked
        except LocalError as error:
            if error.errno == errno.ESTALE:
                return True
            raise

    def adopt(self, host: str | int | HostInfo, *, keep: bool = False) -> None:
        """Makes a host that shares it the owner of an orphan: this process there, or with *keep*
        the host.

        LocalError: not an orphan (EALREADY), not shared with that host (EACCES), past the host's
        quota (EDQUOT).
        """
        wish = wish_of(self.fabric, host_of(self.fabric, host), keep)
        rc = lib.nupa_region_adopt(self.fabric.handle, self.id, wish)
        self._check(rc, "adopt", _ADOPT.get(-rc, ""))

    def free(self, force: bool = False) -> None:
        """Frees the region; does nothing if it is gone already.

        LocalError: it has windows (EBUSY); with *force* their processes lose them.  RemoteError: a
        process keeps its window (ETIMEDOUT); the region goes when the window does.
        """
        rc = lib.nupa_region_free(self.fabric.handle, self.id, force)
        if rc == -errno.ESTALE:
            return
        if rc == -errno.ETIMEDOUT:
            raise RemoteError(
                f"{self} is revoked, but still has windows in {self._window_owners()}, as if it "
                f"were stopped: the memory is kept until the window is gone",
                errno.ETIMEDOUT,
            )
        self._check(rc, "free", self._has_windows(rc, "close them first, or use force"))

    def _has_windows(self, rc: int, remedy: str) -> str:
        """Explains EBUSY, if *rc* says that."""
        return f"it has windows in {self._window_owners()}: {remedy}" if rc == -errno.EBUSY else ""

    def _window_owners(self) -> str:
        """Names the processes that have windows."""
        open_ = ffi.new("struct nupa_region_window[]", _WINDOWS_SAID)
        count = lib.nupa_region_windows_of(self.fabric.handle, self.id, open_, _WINDOWS_SAID)
        hosts = self.fabric.hosts
        names = [
            f"{say(one.pid) or f'pid {one.pid}'} on {hosts[one.host].name}"
            for one in open_[0 : min(count, _WINDOWS_SAID)]
            if one.host < len(hosts)
        ]
        more = [f"{count - _WINDOWS_SAID} more"] if count > _WINDOWS_SAID else []
        return ", ".join([*dict.fromkeys(names), *more])

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def _check(self, rc: int, verb: str, why: str = "") -> None:
        check_region(rc, f"cannot {verb} {self}", why)


_ADOPT = {
    errno.EALREADY: "its owner is alive",
    errno.EACCES: "that host does not share it",
}
_WINDOWS_SAID = 8  # in a message
#: The caller's own errors, beside those that segment.check() knows.
_LOCAL = {errno.EALREADY, errno.EDQUOT, errno.ESTALE, errno.EOPNOTSUPP, errno.ENFILE}
_WHY = {
    errno.EDQUOT: "it is past the quota of its host (`nupa pool quota` shows and sets it), or past "
    "that of the host's tenant (`nupa tenant`)",
    errno.ENFILE: "the fabric's table of regions, or of windows, is full: free some; "
    "`nupa pool ls` lists them",
    errno.ENOMEM: "no run of free memory in the pool is that long: free regions (`nupa pool ls`), "
    "or make the fabric with a larger pool",
    errno.ENOSPC: "the file system that the fabric lies in is full: free some of /dev/shm, or of "
    "the folder that NUPA_DIR names",
    errno.EOPNOTSUPP: "several machines share the fabric, so a process is known by its open device "
    "alone: open one on that host (nupa.verbs.Context)",
    errno.ESTALE: "it is gone: its owner freed it, or died",
    errno.EUCLEAN: "its row in the table is damaged: take the fabric down and make it again",
}


def check_region(rc: int, what: str, why: str = "") -> None:
    """Checks as segment.check(), with the errnos of regions."""
    why = _WHY.get(-rc, why)
    if -rc in _LOCAL:
        raise LocalError(f"{what}: {why}", -rc)
    if rc == -errno.EUCLEAN:
        raise FabricError(f"{what}: {why}", -rc)
    check(rc, what, why)


def info_of(found: Any) -> RegionInfo:
    """Converts a `struct nupa_region_info *`."""
    return RegionInfo(
        id=int(found.id),
        tag=text(found.tag),
        size=int(found.bytes),
        host=int(found.host),
        pid=int(found.pid),
        slot=int(found.slot),
        share=tuple(
            word * _WORD_BITS + bit
            for word in range(len(found.share))
            for bit in range(_WORD_BITS)
            if found.share[word] >> bit & 1
        ),
        coherence=_COHERENCE_NAMES[found.coherence],
        ways=int(found.ways),
        granularity=int(found.granularity),
        pieces=tuple(found.pieces[0 : found.ways]),
        mapped=int(found.mapped),
        published=bool(found.published),
        orphan=bool(found.orphan),
        revoked=found.state == lib.NUPA_REGION_REVOKED,
        home=int(found.home),
    )


def infos(fabric: OpenFabric) -> list[RegionInfo]:
    """Lists all regions of a fabric as they are now, oldest first.

    Regions of dead processes are freed before.
    """
    handle = fabric.handle
    lib.nupa_fabric_reap(handle)
    return sorted(_found(handle), key=lambda info: info.id >> 16)


def _found(handle: Any) -> Iterator[RegionInfo]:
    found = ffi.new("struct nupa_region_info *")
    for index in range(lib.nupa_region_limit(handle)):
        rc = lib.nupa_region_get(handle, index, found)
        # A row that is damaged, or changes all the time, hides no other row.
        if rc == 0:
            yield info_of(found)
        elif rc not in (-errno.ENOENT, -errno.EUCLEAN, -errno.EAGAIN):
            check_region(rc, f"cannot read region {index}")


def as_dict(fabric: OpenFabric, info: RegionInfo) -> dict[str, Any]:
    """Returns plain values for --json."""
    hosts = fabric.hosts
    return {
        "id": f"{info.id:#x}",
        "tag": info.tag,
        "size": info.size,
        "host": hosts[info.host].name,
        "pid": info.pid,
        "share": [hosts[host].name for host in info.share],
        "coherence": info.coherence,
        "ways": info.ways,
        "granularity": info.granularity,
        "pieces": list(info.pieces),
        "mapped": info.mapped,
        "published": info.published,
        "orphan": info.orphan,
        "revoked": info.revoked,
        "home": hosts[info.home].name,
    }


def owner_of(hosts: tuple[HostInfo, ...], info: RegionInfo) -> Owner:
    return Owner(hosts[info.host].name, info.pid)


def host_of(fabric: OpenFabric, which: str | int | HostInfo) -> int:
    """Returns the host's index.  LocalError: no such host."""
    return fabric.host(which if isinstance(which, str | int) else which.index).index


def share_words(
    fabric: OpenFabric, hosts: Iterable[str | int | HostInfo] | str, owner: int, tag: str
) -> list[int]:
    """Returns the mask of hosts for C; "all": each host.

    LocalError: no such host, or one whose tenant may not have the owner's memory (EACCES).
    """
    words = [0] * 4
    if isinstance(hosts, str) and hosts != "all":
        raise LocalError(
            f"share {hosts!r}: give a list of hosts, as [{hosts!r}], or 'all'", errno.EINVAL
        )
    for which in fabric.hosts if isinstance(hosts, str) else hosts:
        host = host_of(fabric, which)
        if hosts != "all" and not lib.nupa_tenants_share(fabric.handle, host, owner, tag.encode()):
            raise LocalError(
                f"a region of {fabric.hosts[owner].name} cannot be shared with "
                f"{fabric.hosts[host].name}: it is of another tenant (`nupa tenant ls` has "
                "them); share it with hosts of its tenant, or with 'all'",
                errno.EACCES,
            )
        words[host // _WORD_BITS] |= 1 << host % _WORD_BITS
    return words


def wish_of(fabric: OpenFabric, host: int, keep: bool) -> Any:
    """Returns a `struct nupa_region_info *` with an owner: this process on that host, or the host.

    LocalError: the fabric's memory is not coherent.
    """
    if lib.nupa_fabric_flags(fabric.handle) & lib.NUPA_SEGMENT_SOFTWARE:
        raise LocalError(
            f"the fabric {fabric.name!r} cannot have regions: its machines share memory that is "
            "not coherent, so two of them cannot change a row of a table",
            errno.EOPNOTSUPP,
        )
    wish = ffi.new("struct nupa_region_info *")
    wish.host = host
    if not keep:
        wish.pid = os.getpid()
        if lib.nupa_fabric_flags(fabric.handle) & lib.NUPA_SEGMENT_MACHINES:
            wish.slot = lib.nupa_region_slot(fabric.handle, host)
    return wish
