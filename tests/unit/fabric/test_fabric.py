# SPDX-License-Identifier: BSD-3-Clause
"""Fabrics as objects: in one process and named, their ports, pool and life."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nupa.base.holders import dying_are_gone
from nupa.core.segment import Segment
from nupa.fabric import Fabric, FabricError, LocalError, registry, users
from nupa.topology.file import load
from nupa.topology.topology import HostConfig, SegmentConfig, SwitchConfig, Topology, star
from nupa.verbs import Context

SMALL = SegmentConfig(
    slots=8,
    ring_lines=16,
    dma_bytes=4096,
    qp_entries=16,
    mr_entries=16,
    extent_bytes=4096,
    pool_bytes=65536,
)


def small(hosts: int = 2) -> Topology:
    topology = star(hosts)
    return Topology("small", topology.switches, topology.hosts, segment=SMALL)


pytestmark = pytest.mark.usefixtures("folder")


def test_a_fabric_of_one_process_leaves_nothing(folder: Path) -> None:
    with Fabric(hosts=3) as fabric:
        assert [host.name for host in fabric.hosts] == ["host0", "host1", "host2"]
        assert [host.ipv4 for host in fabric.hosts] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
        assert [host.mac for host in fabric.hosts][1] == "02:00:0a:00:00:02"
        assert [host.lid for host in fabric.hosts] == [0, 0, 0]
        assert fabric.path == ""
        assert list(folder.iterdir()) == []


def test_the_largest_fabric_of_one_process_works() -> None:
    with Fabric(hosts=254) as fabric:
        assert fabric.host("host253").ipv4 == "10.0.0.254"
        assert len(fabric.show()["ports"]) == 508


def test_infiniband_gives_lids() -> None:
    topology = Topology(
        "t", (SwitchConfig("s", 2),), (HostConfig("a", "s"), HostConfig("b", "s")), (), "infiniband"
    )
    with Fabric(topology=topology) as fabric:
        assert [host.lid for host in fabric.hosts] == [1, 2]
        assert fabric.hosts[0].link_layer == "infiniband"


def test_a_closed_fabric_says_so() -> None:
    fabric = Fabric()
    fabric.close()
    fabric.close()
    with pytest.raises(LocalError, match="closed"):
        _ = fabric.hosts


def test_a_named_fabric_stays_until_it_is_removed() -> None:
    with Fabric.create("lab", small()) as made:
        generation = made.show()["generation"]
        assert Path(made.path).stat().st_mode & 0o777 == 0o600
    with Fabric.open("lab") as opened:
        assert opened.show()["generation"] == generation
        assert opened.name == "lab"
    assert registry.names() == ["lab"]
    Fabric.remove("lab")
    with pytest.raises(LocalError, match="no fabric is named 'lab'"):
        Fabric.open("lab")


def test_a_second_fabric_of_a_name_is_refused() -> None:
    with Fabric.create("lab", small()):
        with pytest.raises(LocalError, match="'lab' is up already") as caught:
            Fabric.create("lab", small())
        assert caught.value.errno == errno.EEXIST
    Fabric.remove("lab")


def test_a_fabric_in_use_is_not_removed_unless_forced() -> None:
    with Fabric.create("lab", small()) as fabric:
        with pytest.raises(LocalError, match="in use") as caught:
            Fabric.remove("lab")
        assert caught.value.errno == errno.EBUSY
        Fabric.remove("lab", force=True)
        assert len(fabric.hosts) == 2


def test_an_automatic_fabric_goes_with_its_last_user() -> None:
    with Fabric.create("auto", small(), auto=True) as first:
        assert first.auto
        with Fabric.open("auto"):
            pass
        assert registry.names() == ["auto"]
    assert registry.names() == []


def test_an_automatic_fabric_goes_while_a_child_has_yet_to_call_exec() -> None:
    fabric = Fabric.create("auto", small(), auto=True)
    end, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        os.read(end, 1)  # another thread's child has all descriptors until it calls exec
        os._exit(0)
    try:
        fabric.close()
        assert registry.names() == []
    finally:
        os.close(held)
        os.close(end)
        os.waitpid(child, 0)


def test_a_child_that_closes_its_copy_leaves_the_fabric_in_use() -> None:
    with Fabric.create("auto", small(), auto=True) as fabric:
        child = os.fork()
        if child == 0:
            fabric.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert registry.names() == ["auto"]
    assert registry.names() == []


def test_an_automatic_fabric_whose_users_died_is_collected() -> None:
    child = os.fork()
    if child == 0:
        Fabric.create("auto", small(), auto=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert registry.names() == ["auto"]
    registry.collect_all()
    assert registry.names() == []


_LOCK_AND_WAIT = """
import fcntl, signal, sys
fcntl.flock(int(sys.argv[1]), fcntl.LOCK_SH)
print("locked", flush=True)
signal.pause()
"""


def test_a_use_that_ends_with_its_process_is_waited_for() -> None:
    """A killed program releases its locks last: here, we keep one for it."""
    Fabric.create("made", small()).close()
    path = registry.path_of("made")
    lock = os.open(path, os.O_RDONLY)
    argv = [sys.executable, "-c", _LOCK_AND_WAIT, str(lock)]
    with subprocess.Popen(argv, pass_fds=[lock], stdout=subprocess.PIPE) as program:
        assert program.stdout
        assert program.stdout.readline() == b"locked\n"
        assert not dying_are_gone(path)
        program.kill()
        with ThreadPoolExecutor(1) as pool:
            gone = pool.submit(dying_are_gone, path)
            os.close(lock)
            assert gone.result()
    assert not registry.in_use(path)
    Fabric.remove("made")


def test_a_fabric_that_is_not_automatic_is_never_collected() -> None:
    Fabric.create("lab", small()).close()
    registry.collect_all()
    assert registry.names() == ["lab"]
    Fabric.remove("lab")


def test_what_a_killed_maker_left_is_collected() -> None:
    registry_path = Path(registry.path_of("half"))
    registry_path.touch()
    other = Path(registry.path_of("zeros"))
    other.touch(0o600)
    other.write_bytes(bytes(65536))
    registry.collect_all()
    assert registry.names() == []


def test_names_that_are_no_names_are_refused() -> None:
    for name in ("", "a/b", "..", ".hidden", "-f", "a b", "x" * 33, "é"):
        with pytest.raises(LocalError, match="not a name for a fabric"):
            Fabric.create(name, small())
    Fabric.create("x" * 32, small()).close()
    Fabric.remove("x" * 32)


def test_a_folder_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUPA_DIR", "/nowhere")
    with pytest.raises(LocalError, match=r"/nowhere.*NUPA_DIR names another folder"):
        Fabric.create("lab", small())


def test_with_no_name_the_default_or_the_only_one_is_meant() -> None:
    with pytest.raises(LocalError, match="no fabric is named 'default'"):
        Fabric.open()
    for name in ("a", "b"):
        Fabric.create(name, small()).close()
    with pytest.raises(LocalError, match="several fabrics are up, a, b"):
        Fabric.open()
    Fabric.remove("b")
    with Fabric.open() as fabric:
        assert fabric.name == "a"
    Fabric.create("default", small()).close()
    with Fabric.open() as fabric:
        assert fabric.name == "default"
    for name in ("a", "default"):
        Fabric.remove(name)


def test_damaged_segments_are_refused_listed_and_removed() -> None:
    Fabric.create("lab", small()).close()
    path = Path(registry.path_of("lab"))
    whole = path.read_bytes()
    version = whole[:8] + (99).to_bytes(4, "little") + whole[12:]
    for data, message in (
        (version, "layout version 99, this program speaks version"),
        (whole[:1000], "truncated"),
        (os.urandom(len(whole)), "no fabric"),
        (whole[:100] + b"\xff" + whole[101:], "corrupt"),
    ):
        path.write_bytes(data)
        with pytest.raises(FabricError, match=message):
            Fabric.open("lab")
        assert registry.names() == ["lab"]
    Fabric.remove("lab")


def test_a_zeroed_segment_is_refused() -> None:
    path = Path(registry.path_of("lab"))
    path.touch(0o600)
    path.write_bytes(bytes(65536))
    with pytest.raises(FabricError, match="never finished or is zeroed"):
        Fabric.open("lab")
    Fabric.remove("lab")


def test_a_host_is_found_by_name_or_number() -> None:
    with Fabric(topology=load("storage16")) as fabric:
        assert fabric.host("server3").index == 3
        assert fabric.host("3").index == 3
        assert fabric.host(15).name == "server15"
        for which in ("server16", 16, "-1", ""):
            with pytest.raises(LocalError, match="its hosts are server0, server1"):
                fabric.host(which)


def test_a_link_goes_down_at_both_ends_and_is_counted() -> None:
    with Fabric(hosts=2) as fabric:
        fabric.set_port("host1", up=False)
        assert {p["name"]: p["state"] for p in fabric.show()["ports"]} == {
            "host0/1": "ACTIVE",
            "switch0/1": "ACTIVE",
            "host1/1": "DOWN",
            "switch0/2": "DOWN",
        }
        fabric.set_port("host1", up=False)
        fabric.set_port("host1", up=True)
        down = {p["name"]: p["counters"]["link_downed"] for p in fabric.show()["ports"]}
        assert down == {"host0/1": 0, "switch0/1": 0, "host1/1": 1, "switch0/2": 1}
        assert fabric.show()["hosts"][1]["state"] == "ACTIVE"


def test_hosts_are_leased_in_turn_and_freed_on_close() -> None:
    leased = [Fabric.lease(None, None, lambda: small(3)) for _ in range(5)]
    assert [host.name for _, host in leased] == ["host0", "host1", "host2", "host0", "host1"]
    leased[1][0].close()
    again, host = Fabric.lease(None, None, small)
    assert host.name == "host1"
    named, host = Fabric.lease("default", "host2", small)
    assert host.name == "host2"
    assert users.leases(again._segment, 2) == 2
    for fabric in (*(fabric for fabric, _ in leased), again, named):
        fabric.close()
    assert registry.names() == []


def test_a_lease_of_an_unknown_host_makes_no_fabric() -> None:
    with pytest.raises(LocalError, match="has no host 'moon'"):
        Fabric.lease(None, "moon", small)
    assert registry.names() == []


def test_a_lease_dies_with_its_holder() -> None:
    Fabric.create("default", small()).close()
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        Fabric.lease(None, None, small)
        os.write(told, b"1")
        os.read(os.pipe()[0], 1)
    assert os.read(ready, 1) == b"1"
    with Fabric.open() as fabric:
        assert users.leases(fabric._segment, 0) == 1
        os.kill(child, 9)
        os.waitpid(child, 0)
        assert users.leases(fabric._segment, 0) == 0
    os.close(ready)
    os.close(told)
    Fabric.remove("default")


def test_a_slot_that_a_process_is_clearing_is_no_attachment_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Fabric() as fabric, Context(fabric=fabric, host=0):
        (own,) = fabric.processes()
        cleared = own._replace(slot=own.slot + 1, state="reaping")
        monkeypatch.setattr(Segment, "slots", lambda _: iter([own, cleared]))
        assert fabric.processes() == [own]


def test_the_control_lock_keeps_others_out_and_leaves_no_file(folder: Path) -> None:
    ready, told = os.pipe()
    done, finish = os.pipe()
    child = os.fork()
    if child == 0:
        with registry.control_lock():
            os.write(told, b"1")
            os.read(done, 1)
            (folder / "witness").touch()
        os._exit(0)
    assert os.read(ready, 1) == b"1"
    os.write(finish, b"1")
    with registry.control_lock():
        (folder / "witness").unlink()
    os.waitpid(child, 0)
    for fd in (ready, told, done, finish):
        os.close(fd)


def test_pool_memory_has_the_buffer_protocol() -> None:
    with Fabric(topology=small()) as fabric:
        with fabric.alloc(5000) as memory:
            assert len(memory) == 5000  # type: ignore[arg-type]
            view = memoryview(memory).cast("B")  # type: ignore[arg-type]
            assert not any(view)
            view[0:5] = b"hello"
            assert memory[0:5] == b"hello"  # type: ignore[index]
            memory[4999:5000] = b"!"  # type: ignore[index]
            assert view[4999] == ord("!")
            view.release()
            address = memory.address
        memory.free()
        with fabric.alloc(5000) as again:
            assert again.address == address
            assert not any(bytes(again))  # type: ignore[call-overload]


def test_pool_memory_is_bounded() -> None:
    with Fabric(topology=small()) as fabric:
        with fabric.alloc(65536), pytest.raises(FabricError) as caught:
            fabric.alloc(1)
        assert caught.value.errno == errno.ENOMEM
        for size in (65537, 1 << 70):
            with pytest.raises(FabricError, match=f"cannot allocate {size} bytes"):
                fabric.alloc(size)
        for size in (0, -1):
            with pytest.raises(LocalError, match="ask for 1 or more"):
                fabric.alloc(size)


def test_pool_memory_outlives_the_fabric_object() -> None:
    with Fabric(topology=small()) as fabric:
        memory = fabric.alloc(100)
    memory[0:3] = b"abc"  # type: ignore[index]
    assert memory[0:4] == b"abc\0"  # type: ignore[index]
    memory.free()


def test_pool_memory_is_the_same_in_every_opener() -> None:
    with Fabric.create("lab", small()) as one, one.alloc(4096) as memory:
        memory[0:4] = b"nupa"  # type: ignore[index]
        with Fabric.open("lab") as two, two.alloc(4096) as other:
            assert other.address != memory.address
            assert bytes(other)[0:4] == bytes(4)  # type: ignore[call-overload]
            assert memory[0:4] == b"nupa"  # type: ignore[index]
    # Both hold the mapping, and so use the fabric, while they exist.
    del memory, other
    Fabric.remove("lab")


def test_limits_of_the_segment_come_from_the_topology() -> None:
    topology = Topology(
        "t", (SwitchConfig("s", 1),), (HostConfig("h", "s"),), segment=SegmentConfig(slots=1024)
    )
    with pytest.raises(LocalError, match="slots is 1024: choose 2 to 1023"):
        Fabric(topology=topology)


def test_an_idle_pair_holds_less_than_a_megabyte() -> None:
    with Fabric.create("pair", load("pair")) as fabric:
        assert Path(fabric.path).stat().st_blocks * 512 < 1 << 20
    Fabric.remove("pair")


def test_opening_a_path_that_is_no_segment_names_it(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="not a regular file"):
        Segment.open(str(tmp_path))
    with pytest.raises(LocalError, match="has 300 bytes"):
        Segment.open("/" + "p" * 299)
