# SPDX-License-Identifier: BSD-3-Clause
"""NVLink: peer access is enabled before it is used, in one direction, once."""

from __future__ import annotations

import pytest

from nupa.accel.nvlink import PEERS, CudaError, Node, NvlinkDevice, PeerAccessError
from nupa.base.errors import LocalError, RemoteError


def refused(code: CudaError) -> pytest.RaisesExc[PeerAccessError]:
    return pytest.raises(PeerAccessError, check=lambda error: error.code is code)


def devices(count: int, links: list[tuple[int, int]] | None = None) -> list[NvlinkDevice]:
    node = Node(links)
    return [node.attach(number, bytearray(4096)) for number in range(count)]


def test_access_is_enabled_first_once_and_in_one_direction() -> None:
    one, two = devices(2)
    with refused(CudaError.PEER_ACCESS_NOT_ENABLED):
        one.map(two)
    one.enable_peer_access(two)
    with refused(CudaError.PEER_ACCESS_ALREADY_ENABLED):
        one.enable_peer_access(two)
    with refused(CudaError.PEER_ACCESS_NOT_ENABLED):
        two.map(one)
    with one.map(two, 64, 64) as window:
        window.write(0, b"stored")
    assert two.memory.read(64, 6) == b"stored"


def test_windows_are_revoked_when_access_is_disabled_for_good() -> None:
    one, two = devices(2)
    one.enable_peer_access(two)
    window = one.map(two)
    one.disable_peer_access(two)
    with refused(CudaError.PEER_ACCESS_NOT_ENABLED):
        one.disable_peer_access(two)
    one.enable_peer_access(two)
    assert window.revoked
    with pytest.raises(RemoteError, match="taken away"):
        window.write(0, b"x")
    assert one.map(two).read(0, 1) == b"\0"


def test_only_devices_that_a_link_joins_are_peers() -> None:
    one, two, three = devices(3, [(0, 1)])
    assert one.can_access_peer(two)
    assert two.can_access_peer(one)
    for peer in (one, three, devices(1)[0]):
        assert not one.can_access_peer(peer)
        with refused(CudaError.INVALID_DEVICE):
            one.enable_peer_access(peer)


def test_without_a_switch_a_device_has_eight_peers() -> None:
    first, *others = devices(PEERS + 2, [(0, number) for number in range(1, PEERS + 2)])
    for peer in others[:PEERS]:
        first.enable_peer_access(peer)
    with refused(CudaError.TOO_MANY_PEERS):
        first.enable_peer_access(others[PEERS])
    first.disable_peer_access(others[0])
    first.enable_peer_access(others[PEERS])

    first, *others = devices(PEERS + 2)
    for peer in others:
        first.enable_peer_access(peer)


def test_a_number_is_one_devices() -> None:
    node = Node()
    node.attach(0, bytearray(8))
    for number in (0, -1):
        with pytest.raises(LocalError, match="take a free number"):
            node.attach(number, bytearray(8))
