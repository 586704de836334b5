# SPDX-License-Identifier: BSD-3-Clause
"""Each file that is opened by name (docs/files.md), and each thing that may lie there instead.

tests/programs/run/test_two_users.py has the same between real users.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from nupa.base import locks
from nupa.base.errors import RemoteError
from nupa.base.ownership import open_own, outer_uid
from nupa.cli import main
from nupa.cxl.fm.client.transport import SocketTransport
from nupa.cxl.fm.server.manager import Manager
from nupa.cxl.fm.server.server import Server, path_of
from nupa.fabric import Fabric, LocalError, NupaError, registry
from nupa.netdev import state as net_state
from nupa.topology.topology import star
from nupa.vm.agent import agent
from nupa.vm.boot import cache
from nupa.vm.files import state as vm_state
from nupa.vm.files.place import parent, place_of, try_lock
from nupa.vm.machine import launch
from tests.unit.cxl.rack import Rack

STRANGER = 65534
USER = os.geteuid()
only_root = pytest.mark.skipif(USER != 0, reason="only root can give a file away")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """NUPA_DIR, and the place of a machine in it."""
    with tempfile.TemporaryDirectory(prefix="nupa-test-", dir="/dev/shm") as name:
        monkeypatch.setenv("NUPA_DIR", name)
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        place_of("vm").make()
        yield Path(name)


class Opened(NamedTuple):
    """A file of the folder, and the function that opens it."""

    what: str
    file: str
    opener: Callable[[], object]


def hold_control_lock() -> None:
    with registry.control_lock():
        pass


def hold_net_lock() -> None:
    with net_state.lock("lab"):
        pass


def fill_cache() -> None:
    path = Path(os.environ["NUPA_DIR"])
    cache.Cache(path, lambda _line: None).entry("thing", Path.touch)


def lock_vm() -> object:
    return try_lock(place_of("vm").file("lock"))


OPENED = [
    Opened("segment", f"nupa-{USER}-lab", lambda: Fabric.open("lab")),
    Opened("control lock", f"nupa-{USER}.lock", hold_control_lock),
    Opened("lock of interfaces", f".nupa-{USER}-lab.lock", hold_net_lock),
    Opened("state of interfaces", f".nupa-{USER}-lab.net", lambda: net_state.load("lab")),
    Opened("log of pumps", f".nupa-{USER}-lab.log", lambda: net_state.open_log("lab")),
    Opened("manager's socket", f".nupa-{USER}-lab.fm", lambda: SocketTransport("lab")),
    Opened(
        "manager", f".nupa-{USER}-lab.fm", lambda: Server(Manager(Rack().switch), path_of("lab"))
    ),
    Opened("machine", "nupa-vm-vm/machine.json", lambda: vm_state.load(place_of("vm"))),
    Opened("lock of a machine", "nupa-vm-vm/lock", lock_vm),
    Opened("console", "nupa-vm-vm/host0.log", lambda: launch.tail(place_of("vm"), "host0")),
    Opened("lock of the cache", "lock", fill_cache),
]


def plant_link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def plant_hard_link(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def plant_dangling_link(path: Path, target: Path) -> None:
    path.symlink_to(target.with_name("made-by-nobody"))


def plant_fifo(path: Path, _target: Path) -> None:
    os.mkfifo(path, 0o600)


def plant_folder(path: Path, _target: Path) -> None:
    path.mkdir(0o700)


def plant_open_file(path: Path, _target: Path) -> None:
    path.write_text("no fabric")
    path.chmod(0o666)


def plant_foreign_file(path: Path, _target: Path) -> None:
    path.touch(0o600)
    os.chown(path, STRANGER, STRANGER)


def plant_foreign_open_file(path: Path, target: Path) -> None:
    plant_foreign_file(path, target)
    path.chmod(0o666)


def plant_foreign_socket(path: Path, _target: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    os.chown(path, STRANGER, STRANGER)


PLANTED = [
    plant_link,
    plant_dangling_link,
    plant_hard_link,
    plant_fifo,
    plant_folder,
    plant_open_file,
    pytest.param(plant_foreign_file, marks=only_root),
    pytest.param(plant_foreign_open_file, marks=only_root),
    pytest.param(plant_foreign_socket, marks=only_root),
]


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("opened", OPENED, ids=[each.what for each in OPENED])
def test_what_is_not_ours_is_refused_and_named(
    folder: Path, opened: Opened, plant: Callable[[Path, Path], None]
) -> None:
    target = folder / "target"
    target.touch(0o600)
    target.write_text("kept")
    path = folder / opened.file
    plant(path, target)
    owner = path.lstat().st_uid

    with pytest.raises(NupaError) as refusal:
        opened.opener()

    assert str(path) in str(refusal.value)
    assert f"user {owner}" in str(refusal.value)
    assert os.path.lexists(path)
    assert target.read_text() == "kept"
    assert not (folder / "made-by-nobody").exists()


@pytest.mark.parametrize("plant", PLANTED)
def test_a_stray_file_is_listed_with_its_owner_and_disturbs_no_other_fabric(
    folder: Path, plant: Callable[[Path, Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    target = folder / "target"
    target.touch(0o600)
    target.write_text("no fabric")
    path = folder / f"nupa-{USER}-stray"
    plant(path, target)
    owner = path.lstat().st_uid

    assert main(["up", "--name", "lab"]) == 0
    capsys.readouterr()
    assert main(["ls", "--json"]) == 0
    lab, stray = json.loads(capsys.readouterr().out)
    assert main(["down", "lab"]) == 0

    assert (lab["name"], lab["error"]) == ("lab", None)
    assert (stray["name"], stray["path"], stray["owner"]) == ("stray", str(path), owner)
    assert f"user {owner}" in stray["error"]
    assert os.path.lexists(path)


@only_root
def test_an_empty_file_of_another_user_is_not_collected(folder: Path) -> None:
    """A lock file like ours, left by a killed maker."""
    path = folder / f"nupa-{USER}-half"
    plant_foreign_file(path, path)
    registry.collect_all()
    assert registry.names() == ["half"]


# --- locks -------------------------------------------------------------------------------


def test_a_lock_that_is_held_is_not_awaited_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "WAIT_S", 0.05)
    path = folder / f"nupa-{USER}.lock"
    holder = open_own(str(path), os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(LocalError) as refusal:
        hold_control_lock()
    assert refusal.value.errno == errno.EBUSY
    assert f"{path} has been locked for 0.05 s by pid {os.getpid()}" in str(refusal.value)
    os.close(holder)
    hold_control_lock()
    assert not path.exists()


def test_a_segment_that_is_locked_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "WAIT_S", 0.05)
    Fabric.create("lab", star(2)).close()
    holder = open_own(registry.path_of("lab"), os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(LocalError, match=f"by pid {os.getpid()}"):
        Fabric.open("lab")
    os.close(holder)
    Fabric.open("lab").close()


# --- sockets -----------------------------------------------------------------------------


@pytest.fixture
def deaf() -> Iterator[Callable[[Path], None]]:
    """Makes sockets whose listeners accept no connection, with no room for one more caller."""
    with ExitStack() as stack:

        def make(path: Path) -> None:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen(0)
            while True:
                caller = stack.enter_context(socket.socket(socket.AF_UNIX))
                caller.setblocking(False)
                try:
                    caller.connect(str(path))
                except BlockingIOError:
                    return

        yield make


def test_a_manager_that_accepts_nobody_is_not_waited_for(deaf: Callable[[Path], None]) -> None:
    deaf(path_of("lab"))
    with pytest.raises(LocalError, match="no fabric manager serves 'lab'"):
        SocketTransport("lab")
    with pytest.raises(LocalError, match="a fabric manager listens there"):
        Server(Manager(Rack().switch), path_of("lab"))


def test_a_guest_that_accepts_nobody_is_not_waited_for(
    deaf: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_PORT_WAIT_S", 0.05)
    place = place_of("vm")
    deaf(Path(place.socket("host0", 0)))
    with pytest.raises(RemoteError) as refusal:
        agent.try_link(place, "host0", 0)
    assert refusal.value.errno == errno.ETIMEDOUT


# --- folders -----------------------------------------------------------------------------


def test_a_folder_where_everybody_may_replace_files_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    for use in (hold_control_lock, registry.names):
        with pytest.raises(LocalError, match=rf"{folder}.*mode 0777, owner: user {USER}"):
            use()
    folder.chmod(0o1777)
    hold_control_lock()
    assert registry.names() == []


@pytest.fixture
def shm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty /dev/shm for a user without NUPA_DIR."""
    shm = folder / "shm"
    shm.mkdir()
    shm.chmod(0o1777)
    monkeypatch.delenv("NUPA_DIR")
    monkeypatch.delenv("NUPA_UID", raising=False)
    monkeypatch.setattr(registry, "_SHM", str(shm))
    return shm


def test_the_users_own_folder_is_made_for_it_alone_and_goes_with_its_last_file(shm: Path) -> None:
    assert registry.names() == []
    assert list(shm.iterdir()) == []
    Fabric.create("lab", star(2)).close()
    (own,) = shm.iterdir()
    assert own.name == f"nupa-{outer_uid()}"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert [entry.name for entry in own.iterdir()] == [f"nupa-{USER}-lab"]
    Fabric.remove("lab")
    assert list(shm.iterdir()) == []


def test_a_folder_that_goes_while_its_lock_is_taken_is_made_again(
    shm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [2]

    def vanishing(*args: object, **options: object) -> int:
        if left[0]:
            left[0] -= 1
            (shm / f"nupa-{outer_uid()}").rmdir()
        return open_own(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(registry, "open_own", vanishing)
    hold_control_lock()
    assert left == [0]
    assert list(shm.iterdir()) == []


@pytest.mark.parametrize("kind", ["open", "link", "file", pytest.param("foreign", marks=only_root)])
def test_a_folder_that_is_not_the_users_alone_is_refused_and_named(shm: Path, kind: str) -> None:
    own = shm / f"nupa-{outer_uid()}"
    if kind == "link":
        (shm / "real").mkdir(0o700)
        own.symlink_to("real")
    elif kind == "file":
        own.touch(0o600)
    else:
        own.mkdir(0o750 if kind == "open" else 0o700)
        os.chown(own, STRANGER if kind == "foreign" else -1, -1)
    owner = own.lstat().st_uid
    for use in (hold_control_lock, registry.names):
        with pytest.raises(LocalError) as refusal:
            use()
        assert str(own) in str(refusal.value)
        assert f"user {owner}" in str(refusal.value)
        assert "NUPA_DIR" in str(refusal.value)


def test_the_root_of_a_user_namespace_has_the_folder_of_the_user_that_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NUPA_DIR")
    monkeypatch.delenv("NUPA_UID", raising=False)
    say = "from nupa.fabric import registry; print(registry.folder())"
    command = ["unshare", "--map-root-user", sys.executable, "-c", say]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.stdout, done.stderr) == (f"/dev/shm/nupa-{USER}\n", "")


@pytest.mark.parametrize("kind", ["open", pytest.param("foreign", marks=only_root)])
def test_the_folder_of_machines_is_the_users_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    monkeypatch.setenv("TMPDIR", str(folder))
    if os.path.lexists(f"/run/user/{outer_uid()}"):
        pytest.skip(f"/run/user/{outer_uid()} is there, and goes before")
    own = folder / f"nupa-{outer_uid()}"
    own.mkdir(0o755 if kind == "open" else 0o700)
    os.chown(own, STRANGER if kind == "foreign" else -1, -1)
    with pytest.raises(LocalError, match=rf"{own} .*owner: user {own.stat().st_uid},"):
        parent()


@pytest.mark.parametrize("kind", ["open", pytest.param("foreign", marks=only_root)])
def test_guests_are_booted_from_what_nobody_else_may_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("NUPA_VM_CACHE", str(folder))
    folder.chmod(0o700)
    kept = cache.Cache(cache.folder(), lambda _line: None)
    entry = kept.entry("thing", Path.touch)
    if kind == "open":
        folder.chmod(0o770)
    else:
        os.chown(entry, STRANGER, -1)
    with pytest.raises(LocalError, match=r"from which guests boot, is refused.*owner: user"):
        cache.Cache(cache.folder(), lambda _line: None).entry("thing", Path.touch)
