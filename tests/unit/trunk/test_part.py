# SPDX-License-Identifier: BSD-3-Clause
"""A machine's part, without its trunk: the copy of the segment, the state, what programs may do."""

from __future__ import annotations

import errno
import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from nupa.base.errors import FabricError, LocalError
from nupa.base.process import Process, of_pid
from nupa.cli.run.own_host import choice
from nupa.core.trunk import host_machine, machines
from nupa.fabric import Fabric
from nupa.netdev.up import Wish, up_locked
from nupa.trunk import down, state, view
from nupa.trunk.cluster import Cluster
from nupa.trunk.file import ClusterText
from nupa.trunk.here import check_own, own_hosts
from nupa.trunk.segment import create, first_slots
from nupa.trunk.state import PartState
from tests.unit.trunk.test_cluster_file import MACHINES, TRUNK

NOBODY = Process(os.getpid(), 1)  # another process had our pid


@pytest.fixture
def cluster() -> Cluster:
    return ClusterText("lab.toml", f'topology = "storage16"\n{MACHINES}{TRUNK}').parse()


def stored(cluster: Cluster, machine: str, process: Process = NOBODY) -> PartState:
    """Makes the machine's copy and its state, as `nupa trunk up` does."""
    generation = cluster.generation("s")
    with create(cluster, cluster.machine(machine), generation) as fabric:
        part = PartState(
            *(cluster.name, fabric.path, fabric.generation, "s", machine, cluster.machines),
            *("hand", "1.13.1 /lib/libucp.so.0", process),
        )
    state.store(part)
    return part


def test_copies_have_one_generation_and_each_its_own_machine(
    folder: Path, cluster: Cluster
) -> None:
    generations = []
    for machine in cluster.machines:
        with create(cluster, machine, cluster.generation("s")) as fabric:
            generations.append(fabric.generation)
            found = machines(fabric)
            assert [each.own for each in found] == [each is machine for each in cluster.machines]
            assert [(each.first_slot, each.end_slot) for each in found] == [(1, 129), (129, 256)]
            assert [host_machine(fabric, host.index) for host in fabric.hosts] == [0] * 8 + [1] * 8
        Fabric.remove(cluster.name)
    assert generations == [f"{cluster.generation('s'):016x}"] * 2
    assert list(folder.iterdir()) == []


def test_slots_are_divided_evenly_and_each_machine_has_one() -> None:
    assert first_slots(3, 2) == [1, 2]
    assert first_slots(256, 64)[-1] == 253


def test_a_copy_stands_in_the_way_of_another_fabric(folder: Path, cluster: Cluster) -> None:
    del folder
    stored(cluster, "alpha")
    with pytest.raises(LocalError, match="is up already"):
        create(cluster, cluster.machines[0], 7)
    down.down(cluster.name)


def test_programs_get_hosts_of_this_machine(folder: Path, cluster: Cluster) -> None:
    del folder
    stored(cluster, "beta")
    own = tuple(f"server{number}" for number in range(8, 16))
    with Fabric.open(cluster.name) as fabric:
        assert own_hosts(fabric) == choice(fabric, None) == own
        assert choice(fabric, "server9") == ()
        with pytest.raises(LocalError) as caught:
            check_own(fabric, "server0")
        assert caught.value.errno == errno.EREMOTE
        assert "server0 of 'lab' is on the machine alpha (192.0.2.1): run it there" in str(
            caught.value
        )
        assert f"the hosts here, on beta, are {', '.join(own)}" in str(caught.value)
    leased, host = Fabric.lease(cluster.name, None, lambda: cluster.topology, choice)
    with leased:
        assert host.name == "server8"
        second, host = Fabric.lease(cluster.name, None, lambda: cluster.topology, choice)
        with second:
            assert host.name == "server9"
    with pytest.raises(LocalError, match="is on the machine alpha"):
        Fabric.lease(cluster.name, "server1", lambda: cluster.topology, choice)
    down.down(cluster.name)


def test_interfaces_are_made_for_hosts_of_this_machine(folder: Path, cluster: Cluster) -> None:
    del folder
    stored(cluster, "beta")
    refused = pytest.raises(LocalError, match="server0 of 'lab' is on the machine alpha")
    with Fabric.open(cluster.name) as fabric, ExitStack() as undo, refused:
        up_locked(fabric, False, Wish(["server0"]), undo)
    down.down(cluster.name)


def test_a_fabric_without_a_trunk_has_all_hosts_here(folder: Path) -> None:
    from nupa.topology.topology import star

    del folder
    with Fabric.create("plain", star(2)) as fabric:
        assert own_hosts(fabric) == choice(fabric, None) == ()
        assert machines(fabric) == []
        check_own(fabric, "host1")
        # A state of another fabric of this name does not count.
        Path(state.path_of("plain")).touch(mode=0o600)
        with pytest.raises(FabricError, match="takes it away"):
            own_hosts(fabric)
        Path(state.path_of("plain")).unlink()
    Fabric.remove("plain")


def test_a_part_whose_trunk_died_is_shown_as_dead(folder: Path, cluster: Cluster) -> None:
    stored(cluster, "alpha")
    shown = view.part(cluster.name)
    assert (shown["trunk"], shown["machine"], shown["made_by"]) == ("dead", "alpha", "hand")
    assert [(each["name"], each["state"]) for each in shown["machines"]] == [
        ("alpha", "here"),
        ("beta", "unknown"),
    ]
    assert view.places(cluster.name)["server15"] == "beta"
    assert down.down(cluster.name) == (cluster.name, "removed")
    with pytest.raises(LocalError, match="has no trunk here"):
        down.down(cluster.name)
    assert list(folder.iterdir()) == []


def test_a_copy_in_use_stays_without_its_trunk(folder: Path, cluster: Cluster) -> None:
    stored(cluster, "alpha")
    with Fabric.open(cluster.name):
        assert down.down(cluster.name).fabric_is == "in use"
        assert state.load(cluster.name) is None
    Fabric.remove(cluster.name)
    stored(cluster, "alpha")
    with Fabric.open(cluster.name):
        assert down.down(cluster.name, force=True).fabric_is == "removed"
    assert list(folder.iterdir()) == []


def test_the_process_takes_its_own_part_away_only(folder: Path, cluster: Cluster) -> None:
    ours = of_pid(os.getpid())
    assert ours is not None
    part = stored(cluster, "alpha", ours)
    down.take_away(cluster.name, part.generation, by=1)
    down.take_away(cluster.name, "0" * 16, by=ours.pid)
    assert state.load(cluster.name) == part
    down.take_away(cluster.name, part.generation, by=ours.pid)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": 99}, "it has version 99"),
        ({"machine": "omega"}, "`machine` is 'omega', none of its machines"),
        ({"machines": 3}, "`machines` is 3"),
        ({"machines": [{"name": "alpha"}]}, "the key `address` is missing"),
        ({"process": [0, 1]}, "`process` is [0, 1]"),
        ({"engine": None}, "`engine` is None"),
    ],
)
def test_a_damaged_state_is_refused_and_taken_away(
    folder: Path, cluster: Cluster, change: dict[str, object], why: str
) -> None:
    stored(cluster, "alpha")
    path = Path(state.path_of(cluster.name))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FabricError) as caught:
        state.load(cluster.name)
    assert why in str(caught.value)
    assert "`nupa trunk down --fabric lab --here` takes it away" in str(caught.value)
    assert view.places(cluster.name) == {}
    # The segment stays: the state does not say whether it is this one.
    down.down(cluster.name)
    Fabric.remove(cluster.name)
    assert list(folder.iterdir()) == []
