# SPDX-License-Identifier: BSD-3-Clause
"""The ports of a fabric as links of its CXL switch, and a thread that follows their states."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod, finalize

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.cxl.link.wire import Wire
from nupa.memory.region import check_region

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric

_log = logging.getLogger(__name__)
_IDLE_MS = 60_000
_APART_MS = 100  # no futex wakes the thread of another kernel


class FabricWire(Wire):
    """The link at *port* of a fabric, by its index: both ends.  *settled* waits for those who
    follow it."""

    def __init__(self, fabric: Fabric, port: int, settled: Callable[[], None]) -> None:
        super().__init__()
        self._fabric = fabric
        self._name = fabric.ports[port].name
        self._ends = (port, fabric.ports[port].peer)
        self._settled = settled

    @property
    def up(self) -> bool:
        return all(port.state == lib.NUPA_PORT_ACTIVE for port in self._ports())

    @property
    def downs(self) -> int:
        return sum(int(port.link_downed) for port in self._ports())

    def _ports(self) -> list[Any]:
        return [lib.nupa_fabric_port(self._fabric.handle, end) for end in self._ends]

    def set(self, up: bool) -> None:
        self._fabric.set_port(self._name, up, wait=False)

    def settle(self) -> None:
        self._settled()


class Follower(Closing):
    """A thread that calls *act*, with *lock*, after each change of a port of *fabric*.
    `Fabric.set_port`, in any process, returns after that.

    If several machines share the fabric, it does not wait."""

    def __init__(self, fabric: Fabric, lock: RLock, act: Callable[[], None]) -> None:
        self._lock = lock
        self._act = WeakMethod(act)
        self._fabric = ffi.gc(lib.nupa_fabric_get(fabric.handle), lib.nupa_fabric_put)
        place = ffi.new("uint32_t *")
        rc = lib.nupa_region_follow(self._fabric, place)
        self._place = place[0] if rc == 0 else None
        if rc != -errno.EOPNOTSUPP:
            check_region(rc, "cannot follow ports")
        ending = Event()
        apart = lib.NUPA_SEGMENT_MACHINES | lib.NUPA_SEGMENT_SOFTWARE
        idle_ms = _APART_MS if lib.nupa_fabric_flags(self._fabric) & apart else _IDLE_MS
        self._thread = Thread(
            target=_run,
            args=(self._fabric, idle_ms, ending, WeakMethod(self.follow)),
            name="nupa-ports",
            daemon=True,
        )
        self._end = finalize(self, _end, self._fabric, ending)
        self._thread.start()

    def follow(self) -> None:
        """Acts on all changes so far."""
        epoch = ffi.new("uint32_t *")
        with self._lock:
            lib.nupa_region_await_epoch(self._fabric, epoch, 0)
            try:
                act = self._act()
                if act is not None:
                    act()
            finally:  # also after a failure: waiting again would not help
                if self._place is not None:
                    lib.nupa_region_heed(self._fabric, self._place, epoch[0])

    def close(self) -> None:
        """Stops following, so that no process waits for it; call it without the lock."""
        self._end()
        self._thread.join()
        if self._place is not None:
            lib.nupa_region_map_end(self._fabric, self._place)
            self._place = None


def _end(fabric: Any, ending: Event) -> None:
    ending.set()
    lib.nupa_region_links_changed(fabric)


def _run(fabric: Any, idle_ms: int, ending: Event, follow: WeakMethod[Callable[[], None]]) -> None:
    epoch = ffi.new("uint32_t *")
    while not ending.is_set():
        if lib.nupa_region_await_epoch(fabric, epoch, idle_ms):
            ending.wait(idle_ms / 1000)  # not coherent, so there is no such word
        act = follow()
        if act is None or ending.is_set():
            return
        try:
            act()
        except Exception:  # later changes are still followed
            _log.exception("ports of the fabric")
        del act
