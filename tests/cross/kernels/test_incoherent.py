# SPDX-License-Identifier: BSD-3-Clause
"""A fabric in memory that several kernels share, with caches that are taken not to agree: programs
work there by flush and fetch.  Here are whole processes, and refusals.  The proof that no flush or
fetch is missing is test_coherence.c."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nupa.base.errors import FabricError, LocalError
from nupa.fabric import Fabric, Fault
from nupa.topology.topology import SegmentConfig, Topology, star
from tests.cross.conftest import Pair
from tests.cross.operations.test_operations import (  # noqa: F401  # collected here, too, with the fixtures below
    test_atomics_return_what_was_there,
    test_both_directions_at_once,
    test_counted_messages_stay_in_order,
    test_datagrams_arrive_behind_their_grh,
    test_read_fetches_exactly_its_bytes,
    test_send_arrives_whole,
    test_send_with_invalidate_ends_the_key,
    test_write_changes_exactly_its_bytes,
    test_write_with_immediate_takes_a_receive_after_its_data,
)
from tests.cross.peers.peer import Peer, PeerError

MEMORY_BYTES = 64 << 20


def incoherent(hosts: int, **sizes: int) -> Topology:
    topology = star(hosts)
    topology.segment = SegmentConfig(segment_bytes=MEMORY_BYTES, coherence="software", **sizes)
    return topology


@pytest.fixture
def fabric(nupa_dir: Path) -> Iterator[Fabric]:  # noqa: ARG001
    with Fabric.create("cross", incoherent(2)) as fabric:
        yield fabric


def test_device_memory_is_relayed_too(fabric: Fabric, make_pair: Callable[..., Pair]) -> None:
    make_pair()

    assert {found["mover"] for found in fabric.show()["movers"]} == {"relay"}


def test_a_second_kernel_is_refused_on_a_host(fabric: Fabric, spawn: Callable[[], Peer]) -> None:
    first, second = spawn(), spawn()
    first.attach(fabric.name, 0)

    with pytest.raises(PeerError, match="host 0 is in use under another kernel"):
        second.attach(fabric.name, 0)

    second.attach(fabric.name, 1)


def test_faults_are_refused(fabric: Fabric) -> None:
    with pytest.raises(FabricError, match='coherence = "hardware"'):
        fabric.add_fault("host0", Fault("drop"))


def test_each_host_needs_a_slot(nupa_dir: Path) -> None:  # noqa: ARG001
    topology = incoherent(40, slots=4, ring_lines=16, dma_bytes=4096)

    with (
        pytest.raises(LocalError, match="each host needs one of its own"),
        closing(Fabric.create("crowd", topology)),
    ):
        pass
