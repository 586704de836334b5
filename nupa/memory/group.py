# SPDX-License-Identifier: BSD-3-Clause
"""Groups: memory of several hosts, on which the switches between them compute.

csrc/region/group/group.h says what a request does, csrc/region/group/tree.h in which order.
"""

from __future__ import annotations

import errno
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.base.errors import LocalError
from nupa.core.segment import WHY_BYTES, check, text
from nupa.memory import reduction
from nupa.memory.pool import Pool
from nupa.memory.region import Region, RegionInfo, host_of
from nupa.memory.window import Window, WindowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nupa.core.open_fabric import OpenFabric
    from nupa.core.segment import HostInfo

#: Hosts of a group, at most.
MEMBERS_MAX: int = lib.NUPA_GROUP_MEMBERS_MAX
#: Bytes of a group's name in UTF-8; the tags of its regions have the rest.
NAME_BYTES_MAX = 23
_TAG = re.compile(r"(?P<place>\d+)/(?P<many>\d+) (?P<name>.*)")


class Group:
    """Regions of equal size, one of each host, as Fabric.group makes them and find_group finds
    them; a context manager that frees them.

    A member's memory is at its host.  Requests of a GroupWindow go to the switches, which execute
    them on all members: at one switch in the order of the hosts' numbers, then up the tree.
    """

    def __init__(self, fabric: OpenFabric, name: str, regions: Sequence[Region]) -> None:
        self.fabric = fabric
        self.name = name
        #: One of each host, in the order of *hosts*.
        self.regions = tuple(regions)
        self.size = regions[0].size
        #: The names of the members, in the order in which the switch takes them.
        self.hosts = tuple(region.owner.host for region in regions)

    def __repr__(self) -> str:
        return f"<Group {self.name!r} of {len(self.hosts)} hosts, {self.size} bytes each>"

    def map(self, host: str | int | HostInfo) -> GroupWindow:
        """Maps the group as a member.

        LocalError: the host is no member, or a region is gone; FabricError: a link is down
        (ENETDOWN).
        """
        return GroupWindow(self, self.fabric.hosts[host_of(self.fabric, host)])

    def free(self, force: bool = False) -> None:
        """Frees the regions.  LocalError: they are mapped (EBUSY); with *force* windows are lost.

        A second call does nothing.
        """
        for region in self.regions:
            region.free(force)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


class GroupWindow(Closing):
    """A group as one of its hosts sees it: Group.map makes it.

    `window` is the host's own memory, for loads and stores that no other member sees.  The methods
    are requests to the switches; offsets and sizes are in bytes, multiples of the element's.

    >>> from nupa.fabric import Fabric
    >>> with Fabric(hosts=2) as fabric, fabric.group(["host0", "host1"], 4096) as group:
    ...     with group.map("host0") as one, group.map("host1") as two:
    ...         one.store(0, bytes([1, 0, 0, 0]))
    ...         two.reduce(0, bytes([2, 0, 0, 0]), "u32")
    ...         one.load_reduce(0, 4, "u32"), two.window.read(0, 1)
    (b'\\x06\\x00\\x00\\x00', b'\\x03')

    LocalError: outside, not aligned, no such type or operator.  WindowError: the link of a member
    or one between switches went down, or memory is gone: the group is lost for good.
    """

    def __init__(self, group: Group, host: HostInfo) -> None:
        self.group = group
        self.host = host
        self.name = f"group {group.name or group.size!r} of {host.name}"
        if host.name not in group.hosts:
            raise LocalError(
                f"{host.name} is no member of {group}: these are {', '.join(group.hosts)}",
                errno.EACCES,
            )
        fabric = group.fabric
        with ExitStack() as stack:
            windows = [
                stack.enter_context(Window(fabric, host, region)) for region in group.regions
            ]
            #: The host's own memory.
            self.window: Window = windows[group.hosts.index(host.name)]
            members = [fabric.host(name).index for name in group.hosts]
            views = [window._view for window in windows]
            out, why = ffi.new("struct nupa_group **"), ffi.new("char[]", WHY_BYTES)
            rc = lib.nupa_group_new(
                fabric.handle, host.index, members, views, len(views), out, why, WHY_BYTES
            )
            check(rc, f"cannot map {group} as {host.name}", text(why))
            self._group: Any = ffi.gc(out[0], lib.nupa_group_free)
            self._windows = windows
            self._stack = stack.pop_all()
        self._culprit = ffi.new("uint32_t *")

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def store(self, offset: int, data: Any) -> None:
        """Stores *data*, a contiguous buffer, at *offset* of each member (multimem.st)."""
        given = ffi.from_buffer(data)
        rc = lib.nupa_group_store(
            self._open(offset, len(given)), offset, given, len(given), self._culprit
        )
        self._heed(rc, "store", offset, len(given))

    def load_reduce(self, offset: int, size: int, type_: str, operator: str = "add") -> bytes:
        """Returns the members' elements reduced to one array (multimem.ld_reduce)."""
        found = bytearray(max(size, 0))
        self.load_reduce_into(found, offset, type_, operator)
        return bytes(found)

    def load_reduce_into(self, into: Any, offset: int, type_: str, operator: str = "add") -> None:
        """Does load_reduce into a writable contiguous buffer, which gives the size."""
        numbers = reduction.numbers(type_, operator)
        target = ffi.from_buffer(into, require_writable=True)
        rc = lib.nupa_group_load_reduce(
            self._open(offset, len(target)), offset, target, len(target), *numbers, self._culprit
        )
        self._heed(rc, f"load_reduce ({operator} of {type_})", offset, len(target))

    def reduce(self, offset: int, data: Any, type_: str, operator: str = "add") -> None:
        """Reduces *data* into each member (multimem.red), atomically for each element."""
        numbers = reduction.numbers(type_, operator)
        given = ffi.from_buffer(data)
        rc = lib.nupa_group_reduce(
            self._open(offset, len(given)), offset, given, len(given), *numbers, self._culprit
        )
        self._heed(rc, f"reduce ({operator} of {type_})", offset, len(given))

    def reduce_store(self, offset: int, size: int, type_: str, operator: str = "add") -> None:
        """Reduces the members' elements to one array and stores it to each member.

        Each host's link passes the bytes once in each direction.
        """
        numbers = reduction.numbers(type_, operator)
        rc = lib.nupa_group_reduce_store(
            self._open(offset, size), offset, size, *numbers, self._culprit
        )
        self._heed(rc, f"reduce_store ({operator} of {type_})", offset, size)

    def close(self) -> None:
        """Unmaps the group.  A second call does nothing."""
        self._group = None
        self._stack.close()

    def _open(self, offset: int, size: int) -> Any:
        if self._group is None:
            raise LocalError(f"{self.name} is closed: map it again", errno.EBADF)
        if offset < 0 or size < 0 or offset + size > self.group.size:
            raise LocalError(
                f"{self.name}: {size} bytes at {offset:#x}: it has {self.group.size:#x}",
                errno.ERANGE,
            )
        return self._group

    def _heed(self, rc: int, what: str, offset: int, size: int) -> None:
        if rc == 0:
            return
        what = f"{self.name}: {what} of {size} bytes at {offset:#x}"
        if rc == -errno.EINVAL:
            raise LocalError(f"{what}: both are to be multiples of the element's bytes", -rc)
        culprit = self.group.fabric.hosts[self._culprit[0]].name
        if rc == -errno.ENETDOWN:
            raise WindowError(f"{what}: the link of {culprit} went down: map the group again", -rc)
        if rc == -errno.EHOSTUNREACH:
            raise WindowError(
                f"{what}: a link between the switches on the way to {culprit} went down: map the "
                "group again",
                -rc,
            )
        if rc == -errno.ESTALE:
            raise WindowError(f"{what}: the memory of {culprit} is gone", -rc)
        check(rc, what)


def make(
    fabric: OpenFabric, hosts: Sequence[str | int | HostInfo], size: int, name: str = ""
) -> Group:
    """Makes a group with zeroed memory of *size* bytes at each of *hosts*: see Fabric.group."""
    indices = sorted(host_of(fabric, host) for host in hosts)
    what = f"cannot make a group of {len(indices)} hosts"
    if not 1 <= len(indices) <= MEMBERS_MAX:
        raise LocalError(f"{what}: give 1 to {MEMBERS_MAX} hosts", errno.EINVAL)
    for index in indices:
        if indices.count(index) > 1:
            raise LocalError(f"{what}: {fabric.hosts[index].name} is given twice", errno.EINVAL)
    _check_name(fabric, name, what)
    everyone = [fabric.hosts[index] for index in indices]
    with ExitStack() as stack:
        regions = []
        for place, host in enumerate(everyone):
            tag = f"{place}/{len(everyone)} {name}"
            regions.append(Pool(fabric).alloc(size, tag, everyone, host=host))
            stack.callback(regions[-1].free)
        stack.pop_all()
    return Group(fabric, name, regions)


def find(fabric: OpenFabric, name: str) -> Group:
    """Returns the group of that name.  LocalError: there is none (ENOENT)."""
    # A process that died while it made a group leaves some of its regions: each process has a set.
    sets: dict[tuple[int, int], dict[int, RegionInfo]] = {}
    for info in Pool(fabric).infos():
        tag = _TAG.fullmatch(info.tag)
        if tag is not None and tag["name"] == name and name:
            found = sets.setdefault((info.pid, int(tag["many"])), {})
            found[int(tag["place"])] = info
    whole = [found for (_, many), found in sets.items() if sorted(found) == list(range(many))]
    if not whole:
        raise LocalError(f"there is no group {name!r}: `nupa pool ls` lists regions", errno.ENOENT)
    newest = max(whole, key=lambda found: found[0].id)
    return Group(fabric, name, [Region(fabric, newest[place]) for place in sorted(newest)])


def _check_name(fabric: OpenFabric, name: str, what: str) -> None:
    if len(name.encode()) > NAME_BYTES_MAX or not name.isprintable():
        raise LocalError(
            f"{what} named {name!r}: give at most {NAME_BYTES_MAX} bytes of text", errno.EINVAL
        )
    try:
        find(fabric, name)
    except LocalError:
        return
    raise LocalError(f"{what} named {name!r}: there is one", errno.EEXIST)
