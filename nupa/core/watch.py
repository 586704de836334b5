# SPDX-License-Identifier: BSD-3-Clause
"""Watching a fabric: packets of its traffic, as csrc/capture/watch.h makes them.

Any number of watches read what attachments record.  A watch never delays an attachment: slow
readers find records overwritten and count them as lost.  Watches have no wake-up; wait() polls, at
once after packets and up to 20 ms later when nothing comes.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.base.errors import LocalError
from nupa.core.levels import DEFAULT_LEVELS, LEVELS, parse_levels
from nupa.core.place import find_port
from nupa.core.segment import WHY_BYTES, check, text

if TYPE_CHECKING:
    from nupa.core.open_fabric import OpenFabric

BUFFER_BYTES = 4 << 20
NAP_MAX_S = 0.02
_NAP_MIN_S = 50e-6
# struct nupa_watch_packet
_HEAD = Struct("=QQIIIHHHBBB3x")
assert _HEAD.size == ffi.sizeof("struct nupa_watch_packet")


class WatchPacket(NamedTuple):
    """A packet.  *data*: in the format of its level (docs/packet.md).

    *original_bytes*: its length before it was cut.  *port* and *host* are indices in the fabric;
    *flags*, *level*, *kind* and *direction* are numbers of nupa.packet.tables.record.
    """

    ts_ns: int
    transfer: int
    data: bytes
    original_bytes: int
    sequence: int
    port: int
    host: int
    flags: int
    level: int
    kind: int
    direction: int


class WatchCounts(NamedTuple):
    """*records* were read and became *packets*; *lost* records were overwritten before that.

    *invalid* records made no sense, as those of a dying or hostile process.
    """

    records: int
    packets: int
    lost: int
    invalid: int


def ports_of(fabric: OpenFabric, where: Iterable[str]) -> tuple[int, ...]:
    """Returns the ports of hosts, ports or links by name; "any" is none in particular.

    LocalError: no such host, port or link.
    """
    names = list(where)
    if "any" in names:
        return ()
    hosts, ports = fabric.hosts, fabric.ports
    return tuple(dict.fromkeys(find_port(ports, hosts, name).index for name in names))


class Naps:
    """Pauses between polls: *shortest_s* after a success, then doubling up to *longest_s*."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        shortest_s: float = 0.0,
        longest_s: float = NAP_MAX_S,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._shortest_s = shortest_s
        self._longest_s = longest_s
        self._next_s = shortest_s

    def now(self) -> float:
        return self._clock()

    def found(self) -> None:
        """Resets the next nap to the shortest."""
        self._next_s = self._shortest_s

    def nap(self, deadline: float | None = None) -> bool:
        """Waits, at most until *deadline*, a time of the clock.  False: the deadline has passed."""
        nap_s = self._next_s
        if deadline is not None:
            left_s = deadline - self._clock()
            if left_s <= 0:
                return False
            nap_s = min(nap_s, left_s)
        self._sleep(nap_s)
        self._next_s = min(max(2 * self._next_s, _NAP_MIN_S), self._longest_s)
        return True


class Watch(Closing):
    """Reads the traffic of *fabric* from now on; a context manager.

    levels: names of LEVELS; packets of lower levels cost more.
    snap_bytes: the length to which packets are cut, with headers; 0: whole.
    ports: indices of the ports to watch; none: each packet once, where its source sends it.

    All living attachments record when this returns.  LocalError: no such level, port or length
    (EINVAL); FabricError: there are 64 watches already (EUSERS), no memory or space.
    """

    def __init__(
        self,
        fabric: OpenFabric,
        levels: Iterable[str] = DEFAULT_LEVELS,
        *,
        snap_bytes: int = 0,
        ports: Iterable[int] = (),
    ) -> None:
        self._handle: Any = None
        self._lock = threading.Lock()  # C has none: close() waits for readers
        self.levels = parse_levels(levels)
        self.ports = tuple(ports)
        self._fabric = fabric
        self._buffer: Any = None
        n_ports = len(fabric.ports)
        if not self.levels or not 0 <= snap_bytes < 1 << 32:
            raise LocalError(
                f"a watch of levels {self.levels} with a snap length of {snap_bytes} bytes: "
                f"name a level; lengths have 32 bits",
                errno.EINVAL,
            )
        unknown = [port for port in self.ports if not 0 <= port < n_ports]
        if unknown:
            raise LocalError(
                f"there is no port {unknown[0]}: ports are 0 to {n_ports - 1}", errno.EINVAL
            )
        bits = sum(1 << LEVELS[level] - 1 for level in self.levels)
        why = ffi.new("char[]", WHY_BYTES)
        with fabric.control_lock():
            handle = lib.nupa_watch_open(
                fabric.handle,
                bits,
                snap_bytes,
                ffi.new("uint16_t[]", self.ports),
                len(self.ports),
                why,
                WHY_BYTES,
            )
            error = ffi.errno
        if not handle:
            check(-error, f"cannot watch the fabric {fabric.name!r}", text(why))
        self._handle = handle

    @property
    def handle(self) -> Any:
        """The C `struct nupa_watch *`.  LocalError once closed."""
        if self._handle is None:
            raise LocalError("the watch is closed: open another", errno.EBADF)
        return self._handle

    def read_into(self, buffer: Any, at: int = 0) -> tuple[int, int]:
        """Fills a C array of bytes, from byte *at* on, with packets as struct nupa_watch_packet.

        Returns the number of bytes and of packets.  Room for 1 MiB always suffices for one.
        """
        packets = ffi.new("uint32_t *")
        with self._lock:
            used = lib.nupa_watch_read(self.handle, buffer + at, len(buffer) - at, packets)
        return int(used), int(packets[0])

    def read(self) -> list[WatchPacket]:
        """Returns the packets there are now, in order of time, 4 MiB at most; empty: nothing
        new."""
        if self._buffer is None:
            self._buffer = ffi.new("uint8_t[]", BUFFER_BYTES)
        used, _ = self.read_into(self._buffer)
        return list(_packets(bytes(ffi.buffer(self._buffer, used)))) if used else []

    def wait(self, timeout_s: float | None = None, naps: Naps | None = None) -> list[WatchPacket]:
        """Waits for packets and returns them as read() does; empty: none came in time."""
        naps = naps or Naps()
        deadline = None if timeout_s is None else naps.now() + timeout_s
        while not (packets := self.read()):
            if not naps.nap(deadline):
                return []
        naps.found()
        return packets

    @property
    def counts(self) -> WatchCounts:
        """Counts since the watch began."""
        found = ffi.new("struct nupa_watch_counts *")
        with self._lock:
            lib.nupa_watch_counts(self.handle, found)
        return WatchCounts(found.records, found.packets, found.lost, found.invalid)

    def stop(self) -> None:
        """Stops recording for this watch; recorded packets can still be read."""
        with self._fabric.control_lock(), self._lock:
            lib.nupa_watch_stop(self.handle)

    def close(self) -> None:
        """Ends it."""
        if self._handle is not None:
            with self._fabric.control_lock(), self._lock:
                handle, self._handle = self._handle, None
                if handle is not None:
                    lib.nupa_watch_close(handle)


def _packets(data: bytes) -> Iterator[WatchPacket]:
    at = 0
    while at < len(data):
        ts_ns, transfer, captured, original, sequence, port, host, flags, level, kind, direction = (
            _HEAD.unpack_from(data, at)
        )
        at += _HEAD.size
        body = data[at : at + captured]
        at += captured + -captured % 8
        yield WatchPacket(
            ts_ns, transfer, body, original, sequence, port, host, flags, level, kind, direction
        )
