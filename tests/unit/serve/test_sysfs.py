# SPDX-License-Identifier: BSD-3-Clause
"""The folder of `nupa serve --sysfs`: a device for each host, renewed file by file."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.fabric import Fabric, LocalError
from nupa.live import Snapshots, take
from nupa.live.snapshot import without_fabric
from nupa.serve.sysfs import SysfsFolder, kept
from nupa.topology.file import load
from nupa.topology.topology import star


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(hosts=3) as fabric:
        yield fabric


def device(folder: Path, host: str) -> Path:
    return folder / "class" / "infiniband" / host


def counter(folder: Path, host: str, name: str) -> int:
    return int((device(folder, host) / "ports/1/counters" / name).read_text())


def test_each_host_is_a_device(fabric: Fabric, tmp_path: Path) -> None:
    fabric.set_port("host2", False)
    with SysfsFolder(tmp_path) as folder:
        folder.update(take(fabric))
        found = sorted(path.name for path in (tmp_path / "class/infiniband").iterdir())
        assert found == ["host0", "host1", "host2"]
        one, two = device(tmp_path, "host1"), device(tmp_path, "host2")
        assert (one / "node_guid").read_text() == "0000:0aff:fe00:0002\n"
        assert (one / "ports/1/state").read_text() == "4: ACTIVE\n"
        assert (one / "ports/1/rate").read_text() == "100 Gb/sec (4X EDR)\n"
        assert (two / "ports/1/state").read_text() == "1: DOWN\n"
        assert (two / "ports/1/phys_state").read_text() == "3: Disabled\n"
        assert counter(tmp_path, "host2", "link_downed") == 1


def test_only_files_that_changed_are_written_and_as_a_whole(fabric: Fabric, tmp_path: Path) -> None:
    with SysfsFolder(tmp_path) as folder:
        snapshot = take(fabric)
        folder.update(snapshot)
        before = {path: path.stat().st_ino for path in tmp_path.rglob("*") if path.is_file()}
        (port,) = (port for port in snapshot.fabric["ports"] if port["name"] == "host0/1")
        port["counters"]["port_xmit_data"] = 7
        changed = device(tmp_path, "host0") / "ports/1/counters/port_xmit_data"
        with changed.open() as reader:
            folder.update(snapshot)
            assert reader.read() == "0\n"  # the file that was opened
        assert counter(tmp_path, "host0", "port_xmit_data") == 7
        after = {path: path.stat().st_ino for path in tmp_path.rglob("*") if path.is_file()}
        assert {path for path in after if after[path] != before.get(path)} == {changed}
        assert after.keys() == before.keys()


def test_a_reader_never_sees_a_part_of_a_number(fabric: Fabric, tmp_path: Path) -> None:
    snapshot = take(fabric)
    (port,) = (port for port in snapshot.fabric["ports"] if port["name"] == "host0/1")
    values = [10**n for n in range(12)]
    done = threading.Event()

    def write(folder: SysfsFolder) -> None:
        for value in values * 20:
            port["counters"]["port_xmit_data"] = value
            folder.update(snapshot)
        done.set()

    with SysfsFolder(tmp_path) as folder:
        folder.update(snapshot)
        writer = threading.Thread(target=write, args=(folder,))
        writer.start()
        seen = set()
        while not done.is_set():
            seen.add(counter(tmp_path, "host0", "port_xmit_data"))
        writer.join()
    assert seen <= {0, *values}


def test_without_a_fabric_there_is_no_device(fabric: Fabric, tmp_path: Path) -> None:
    with SysfsFolder(tmp_path) as folder:
        folder.update(take(fabric))
        folder.update(without_fabric("x", OSError("gone")))
        assert list((tmp_path / "class/infiniband").iterdir()) == []
        with Fabric(hosts=1) as other:
            folder.update(take(other))
        assert [path.name for path in (tmp_path / "class/infiniband").iterdir()] == ["host0"]


def test_a_fabric_of_24_hosts_has_24_devices(tmp_path: Path) -> None:
    with Fabric(topology=load("gpu24")) as fabric, SysfsFolder(tmp_path) as folder:
        folder.update(take(fabric))
        assert len(list((tmp_path / "class/infiniband").iterdir())) == 24


def test_nothing_is_left(fabric: Fabric, tmp_path: Path) -> None:
    new, empty = tmp_path / "new", tmp_path / "empty"
    empty.mkdir()
    for path in (new, empty):
        with SysfsFolder(path) as folder:
            folder.update(take(fabric))
    assert not new.exists()
    assert list(empty.iterdir()) == []


def test_files_of_others_stay(tmp_path: Path) -> None:
    with SysfsFolder(tmp_path / "new"):
        (tmp_path / "new" / "mine").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mine"]
    with pytest.raises(LocalError, match="is not empty: name a new folder") as caught:
        SysfsFolder(tmp_path / "new")
    assert caught.value.errno == errno.ENOTEMPTY


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "no" / "folder"):
        with pytest.raises(LocalError, match=f"the folder {path} for --sysfs cannot be written"):
            SysfsFolder(path)


def test_a_failure_is_told_once_and_then_it_goes_on(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Fabric.create("kept", star(2)) as fabric, Snapshots("kept", 0.01) as snapshots:
        path = tmp_path / "new"
        with kept(path, snapshots):
            device(path, "host0").rename(path / "away")
            followers = snapshots.follow(lists=False)
            fabric.set_port("host0", False)
            for _ in range(4):
                next(followers)
            (path / "away").rename(device(path, "host0"))
            state = device(path, "host0") / "ports/1/state"
            while state.read_text() != "1: DOWN\n":
                next(followers)
        assert not os.path.lexists(path)
    said = capsys.readouterr().err
    assert said.count("for --sysfs cannot be written") == 1
    Fabric.remove("kept")
    assert list(folder.iterdir()) == []
