# SPDX-License-Identifier: BSD-3-Clause
"""Runs scapy's sniff() on a fabric.

    from nupa.packet.scapy.sniff import sniff_fabric
    sniff_fabric(count=10, prn=lambda packet: packet.summary())
    sniff_fabric("rack", iface="host0", level="queue,transport", timeout=5)

Packets are those of `nupa capture`: Ether / IP / UDP / BTH of level transport, Ether of net, Nupa
of tlp, queue and cache.  Each has `time`, `sniffed_on` (the port), `direction` (1 inbound, 2
outbound, as in pcapng, which wrpcapng writes), and `wirelen`.  `transfer` is the same at all
levels; a copy of an Ether loses it.  `comments` name the effects of faults on it.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.plist import PacketList
from scapy.sendrecv import sniff
from scapy.supersocket import SuperSocket
from scapy.utils import EDecimal

import nupa.packet.scapy.cm  # noqa: F401  binds MADs, and transport binds BTH
from nupa.base.closing import Closing
from nupa.base.errors import LocalError
from nupa.core.levels import ETHERNET_LEVELS, LEVELS
from nupa.core.watch import Naps, Watch, WatchCounts, WatchPacket, ports_of
from nupa.fabric import Fabric
from nupa.packet.scapy.link import Nupa
from nupa.packet.tables.record import comment_of

_ETHERNET = {LEVELS[name] for name in ETHERNET_LEVELS}


class FabricSockets(dict["PortSocket", str], Closing):
    """The `opened_socket` of scapy: a socket for each port, with its name.

    A context manager that ends the watch; `counts` has what was lost.
    """

    def __init__(
        self, fabric: Fabric, iface: Iterable[str], level: Iterable[str], snaplen: int, owns: bool
    ) -> None:
        super().__init__()
        self.closed = False
        self._fabric = fabric
        self._owns_fabric = owns
        ports = ports_of(fabric, iface)
        self._watch = Watch(fabric, level, snap_bytes=snaplen, ports=ports)
        every = fabric.ports
        self._sockets: dict[int, PortSocket] = {}
        for index in ports or [host.port for host in fabric.hosts]:
            self._sockets[index] = PortSocket(self)
            self[self._sockets[index]] = every[index].name
        self._queue: deque[WatchPacket] = deque()

    @property
    def counts(self) -> WatchCounts:
        return self._watch.counts

    def next_of(self, sockets: Iterable[object]) -> PortSocket | None:
        """Returns which of *sockets* has the next packet; drops packets of others."""
        wanted = set(sockets)
        while True:
            if not self._queue:
                self._queue.extend(self._read())
            if not self._queue:
                return None
            found = self._sockets.get(self._queue[0].port)
            if found is not None and found in wanted:
                return found
            self._queue.popleft()

    def _read(self) -> list[WatchPacket]:
        try:
            return self._watch.read()
        except LocalError:
            if self.closed:  # by another thread
                return []
            raise

    def take(self) -> WatchPacket:
        return self._queue.popleft()

    def close(self) -> None:
        """Ends the watch, and any sniffer that still reads from it."""
        self.closed = True
        for socket in self:
            socket.close()
        self._watch.close()
        if self._owns_fabric:
            self._fabric.close()


class PortSocket(SuperSocket):
    """A socket of one port of a fabric, which only receives."""

    desc = "reads the packets of a port of a NUPA fabric"

    def __init__(self, feed: FabricSockets) -> None:
        self.feed = feed
        self.closed = False

    def recv(self, x: int = 0, **kwargs: Any) -> Packet | None:
        """Returns the next packet.  EOFError once closed."""
        if self.closed:
            raise EOFError
        return _dissected(self.feed.take(), kwargs)

    def send(self, x: Packet) -> int:
        raise LocalError("this socket only receives: send with nupa.packet.scapy.inject")

    def fileno(self) -> int:
        return -1  # no descriptor: scapy calls select() below

    def close(self) -> None:
        self.closed = True

    @staticmethod
    def select(sockets: list[Any], remain: float | None = None) -> list[Any]:
        """Returns at most one ready socket, so that packets of several ports stay in order."""
        ours = [socket for socket in sockets if isinstance(socket, PortSocket)]
        others = [socket for socket in sockets if not isinstance(socket, PortSocket)]
        closed = [socket for socket in ours if socket.closed]
        feeds = {id(socket.feed): socket.feed for socket in ours}.values()
        naps = Naps(sleep=lambda seconds: select.select(others, [], [], seconds))
        deadline = None if remain is None else time.monotonic() + remain
        while not closed:
            ready: list[Any] = select.select(others, [], [], 0)[0]
            if ready:
                return ready
            for feed in feeds:
                found = feed.next_of(ours)
                if found is not None:
                    return [found]
            if not naps.nap(deadline):
                return []
            closed = [socket for socket in ours if socket.closed]
        return closed


def _dissected(packet: WatchPacket, options: dict[str, Any]) -> Packet:
    is_nupa = packet.level not in _ETHERNET
    made: Packet = (Nupa if is_nupa else Ether)(packet.data, **options)
    made.time = EDecimal(packet.ts_ns) / 10**9
    made.wirelen = packet.original_bytes
    made.direction = packet.direction
    if not is_nupa:
        made.transfer = packet.transfer
        comment = comment_of(packet.flags)
        made.comments = [comment.encode()] if comment else None
    return made


def fabric_socket(
    fabric: Fabric | str | None = None,
    iface: str | Iterable[str] = "any",
    level: str | Iterable[str] = "transport",
    snaplen: int = 0,
) -> FabricSockets:
    """Opens a fabric for scapy: `AsyncSniffer(opened_socket=fabric_socket())`.

    *fabric*: a Fabric, the name of one, or None for the one called default or the only one.
    *iface*: hosts, ports or links, or "any": each packet once, at the port of its source.
    *snaplen*: bytes kept of each packet, 0 for all.
    LocalError: there is no such fabric, host or level; FabricError: there are too many watches.
    """
    ours = not isinstance(fabric, Fabric)
    opened = fabric if isinstance(fabric, Fabric) else Fabric.open(fabric)
    where = [iface] if isinstance(iface, str) else iface
    levels = [level] if isinstance(level, str) else level
    try:
        return FabricSockets(opened, where, levels, snaplen, ours)
    except BaseException:
        if ours:
            opened.close()
        raise


def sniff_fabric(
    fabric: Fabric | str | None = None,
    iface: str | Iterable[str] = "any",
    level: str | Iterable[str] = "transport",
    snaplen: int = 0,
    **options: Any,
) -> PacketList:
    """Sniffs a fabric with scapy's sniff().

    prn, lfilter, count, timeout, store, stop_filter, started_callback and session are scapy's.
    Errors are those of fabric_socket().
    """
    if options.keys() & {"filter", "offline", "opened_socket"}:
        raise LocalError(
            "sniff_fabric does not take filter=, offline= or opened_socket=: filter with a "
            "function, lfilter="
        )
    with fabric_socket(fabric, iface, level, snaplen) as sockets:
        return sniff(opened_socket=sockets, **options)
