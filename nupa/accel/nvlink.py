# SPDX-License-Identifier: BSD-3-Clause
"""Devices joined by NVLink: each maps the memory of peers to which it has enabled access.

Names and rules are those of CUDA's runtime (its documentation, "Peer Device Memory Access").
Access is enabled in one direction, once, before it is used.  Without an NVSwitch a device has eight
peers at most.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from enum import IntEnum

from nupa.accel.local import Buffer, as_access
from nupa.base.errors import LocalError
from nupa.memory.access import Access, Atomic, Bytes, WindowBase, check_range

PEERS = 8


class CudaError(IntEnum):
    """The cudaError_t values that these calls return."""

    INVALID_DEVICE = 101
    PEER_ACCESS_ALREADY_ENABLED = 704
    PEER_ACCESS_NOT_ENABLED = 705
    TOO_MANY_PEERS = 711


class PeerAccessError(LocalError):
    """The call was refused and changed nothing; *code* is CUDA's."""

    def __init__(self, message: str, code: CudaError) -> None:
        super().__init__(message)
        self.code = code


class Node:
    """Devices, and the *links* between them: pairs of numbers.

    Without *links* an NVSwitch joins all devices.

    >>> node = Node()
    >>> one, two = node.attach(0, bytearray(64)), node.attach(1, bytearray(64))
    >>> one.enable_peer_access(two)
    >>> window = one.map(two)
    >>> window.write(0, b"store")
    >>> window.read(0, 5), two.can_access_peer(one)
    (b'store', True)
    """

    def __init__(self, links: Iterable[tuple[int, int]] | None = None) -> None:
        self.links = None if links is None else {frozenset(pair) for pair in links}
        self.lock = threading.Lock()
        self._devices: dict[int, NvlinkDevice] = {}

    def attach(self, number: int, memory: Access | Buffer) -> NvlinkDevice:
        """Attaches device *number* with *memory*.  LocalError: the number is taken."""
        if number < 0 or number in self._devices:
            raise LocalError(f"device {number}: take a free number")
        self._devices[number] = device = NvlinkDevice(self, number, as_access(memory))
        return device


class NvlinkDevice:
    """A device of a node: *number*, and the *memory* that its peers may map."""

    def __init__(self, node: Node, number: int, memory: Access) -> None:
        self.node = node
        self.number = number
        self.memory = memory
        #: Peer -> how often access was enabled: a window lasts as long as this number.
        self._enabled: dict[NvlinkDevice, int] = {}
        self._count = 0

    def can_access_peer(self, peer: NvlinkDevice) -> bool:
        """Tells whether a link, or a switch, joins the two.  A device is not its own peer."""
        links = self.node.links
        return (
            peer is not self
            and peer.node is self.node
            and (links is None or frozenset((self.number, peer.number)) in links)
        )

    def enable_peer_access(self, peer: NvlinkDevice) -> None:
        """Lets this device map *peer*'s memory from now on; not the other way around.

        PeerAccessError: it is enabled already, no link joins the two (or it is this device), or
        this would be the ninth peer without a switch.
        """
        what = f"access of device {self.number} to {peer.number}"
        with self.node.lock:
            if not self.can_access_peer(peer):
                raise PeerAccessError(f"{what}: no link joins the two", CudaError.INVALID_DEVICE)
            if peer in self._enabled:
                code = CudaError.PEER_ACCESS_ALREADY_ENABLED
                raise PeerAccessError(f"{what}: it is enabled already", code)
            if self.node.links is not None and len(self._enabled) == PEERS:
                raise PeerAccessError(
                    f"{what}: it has {PEERS} peers already", CudaError.TOO_MANY_PEERS
                )
            self._count += 1
            self._enabled[peer] = self._count

    def disable_peer_access(self, peer: NvlinkDevice) -> None:
        """Revokes windows on *peer*'s memory.  PeerAccessError: access was not enabled."""
        with self.node.lock:
            if self._enabled.pop(peer, None) is None:
                raise self._not_enabled(peer)

    def map(self, peer: NvlinkDevice, offset: int = 0, size: int | None = None) -> PeerWindow:
        """Maps *size* bytes of *peer*'s memory from *offset* on (by default to its end).

        PeerAccessError: access is not enabled; LocalError: outside.
        """
        enabled = self._enabled.get(peer)
        if enabled is None:
            raise self._not_enabled(peer)
        size = len(peer.memory) - offset if size is None else size
        check_range(f"device {peer.number}", offset, size, len(peer.memory))
        return PeerWindow(self, peer, offset, size, enabled)

    def is_enabled(self, peer: NvlinkDevice, count: int) -> bool:
        """Tells whether access is enabled, and has been since the *count*th time."""
        return self._enabled.get(peer) == count

    def _not_enabled(self, peer: NvlinkDevice) -> PeerAccessError:
        return PeerAccessError(
            f"access of device {self.number} to {peer.number} is not enabled: enable_peer_access "
            "comes first, and is for one direction",
            CudaError.PEER_ACCESS_NOT_ENABLED,
        )


class PeerWindow(WindowBase):
    """*size* bytes of *peer*'s memory at *offset*; loads, stores and atomics act there at once."""

    def __init__(
        self, device: NvlinkDevice, peer: NvlinkDevice, offset: int, size: int, enabled: int
    ) -> None:
        super().__init__(f"device {peer.number} from {device.number}", size)
        self._device, self._peer = device, peer
        self._offset = offset
        self._enabled = enabled

    @property
    def revoked(self) -> bool:
        return self._peer.memory.revoked or not self._device.is_enabled(self._peer, self._enabled)

    def read(self, offset: int, size: int) -> bytes:
        self._check(offset, size)
        return self._peer.memory.read(self._offset + offset, size)

    def write(self, offset: int, data: Bytes) -> None:
        self._check(offset, memoryview(data).nbytes)
        self._peer.memory.write(self._offset + offset, data)

    def atomic(self, operation: Atomic, offset: int, operand: int = 0, compare: int = 0) -> int:
        self._check_word(offset, operand, compare)
        return self._peer.memory.atomic(operation, self._offset + offset, operand, compare)
