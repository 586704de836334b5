# SPDX-License-Identifier: BSD-3-Clause
"""The wires of a fabric: made, listed and removed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nupa._engine import lib
from nupa.base.errors import LocalError
from nupa.base.process import end, of_pid
from nupa.fabric.wires import place
from nupa.fabric.wires.address import Address, beside, local_towards, parse
from nupa.fabric.wires.entry import WireEntry, entries
from nupa.fabric.wires.keeper import WireWish
from nupa.fabric.wires.start import ask, start

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric
    from nupa.fabric.wires.thread import KeeperThread


class Wires:
    """The wires of a fabric, in the order of its table; iteration and len() list them.

    >>> from nupa.fabric import Fabric
    >>> with Fabric(hosts=2) as fabric:
    ...     wire = fabric.wires.add("host1", "127.0.0.3", listen="127.0.0.2")
    ...     wire.medium, wire.mtu_bytes
    ('UDP', 4096)
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._threads: dict[Address, KeeperThread] = {}

    def __iter__(self) -> Iterator[WireEntry]:
        return iter(entries(self._fabric._segment))

    def __len__(self) -> int:
        return len(entries(self._fabric._segment))

    def of(self, host: str | int) -> WireEntry:
        """Returns the wire of a host.  LocalError: it has none."""
        name = self._fabric.host(host).name
        for entry in self:
            if entry.host == name:
                return entry
        raise LocalError(
            f"host {name} is no wire: `nupa wire add {name} --address ADDRESS` makes it one",
            errno.ENOENT,
        )

    def add(
        self,
        host: str | int,
        address: str,
        *,
        listen: str | None = None,
        frames: str | None = None,
        raw: bool = False,
    ) -> WireEntry:
        """Makes a host, which has no processes, a wire to *address*.

        listen: our address towards it; None: the one from which the kernel sends there.
        frames: a path where QEMU's `-netdev stream` connects; ",mtu=N" behind it says the guest's
        MTU if it is not 1500.  Packets go in Ethernet frames then, and *listen*, which must be
        given, is an address that no interface has.
        raw: packets are received by raw sockets, which the keeper needs CAP_NET_RAW for: no wrong
        packet passes with IPv4.  IPv6, of which this holds by UDP, has no such wire.

        LocalError, FabricError: no such host, or it is in use; no route; the address is in use or
        not of this machine; the fabric has as many wires as it can; raw sockets are not permitted.
        """
        found = self._fabric.host(host)
        remote = parse(address)
        local = parse(listen) if listen is not None else None
        if raw and frames is not None:
            raise LocalError("a wire has raw sockets or frames, not both", errno.EINVAL)
        if frames is None:
            local = local_towards(remote, local)
            wish = WireWish(found.name, str(remote), "RAW" if raw else "UDP")
        else:
            local = beside(remote, local)
            # The keeper has another working folder.
            wish = WireWish(found.name, str(remote), "FRAMES", str(Path(frames).absolute()))
        if self._fabric._named:
            with place.lock(self._fabric.name):
                self._add_to_process(wish, local)
        else:
            self._add_to_thread(wish, remote, local, found.index)
        return self.of(found.name)

    def remove(self, host: str | int) -> None:
        """Ends the wire of a host.  LocalError: it has none."""
        entry = self.of(host)
        for thread in list(self._threads.values()):
            with suppress(LocalError):
                thread.remove(entry.host)
                return
        if not self._fabric._named:
            return
        with place.lock(self._fabric.name):
            try:
                if entry.state == "DEAD":
                    raise ConnectionRefusedError
                ask(entry.socket, {"op": "remove", "host": entry.host})
            except OSError:
                self._clear(entry)

    def close(self) -> None:
        """Ends those that live in this process."""
        for thread in self._threads.values():
            thread.close()
        self._threads = {}

    def end_keepers(self) -> None:
        """Ends all wires of a named fabric, and their keepers."""
        with place.lock(self._fabric.name):
            for pid in {entry.pid for entry in self if entry.pid}:
                process = of_pid(pid)
                if process is not None:
                    end(process)
            for entry in self:
                self._clear(entry)

    def _add_to_process(self, wish: WireWish, local: Address) -> None:
        for entry in self:
            if entry.listen == str(local) and entry.state != "DEAD":
                with suppress(OSError):
                    ask(entry.socket, {"op": "add", **wish._asdict()})
                    return
        start(self._fabric, local, wish)

    def _add_to_thread(self, wish: WireWish, remote: Address, local: Address, host: int) -> None:
        from nupa.fabric.wires.thread import KeeperThread

        thread = self._threads.get(local) or KeeperThread(self._fabric, local)
        try:
            thread.add(wish, remote, host)
            self._threads[local] = thread
        finally:
            if not thread.wires:
                self._threads.pop(local, None)
                thread.close()

    def _clear(self, entry: WireEntry) -> None:
        """Takes an entry away whose keeper does not."""
        with self._fabric.control_lock():
            if any(found[:3] == entry[:3] and not found.pid for found in self):
                lib.nupa_wire_remove(self._fabric.handle, entry.index)
