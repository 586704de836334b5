# SPDX-License-Identifier: BSD-3-Clause
"""The state file of `net up`, and the processes that it names."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.base import process
from nupa.base.process import Process
from nupa.fabric import FabricError, LocalError, registry
from nupa.netdev import state
from nupa.netdev.namespace import Netns, find
from nupa.netdev.start import PumpPort
from nupa.netdev.state import HostNet, State


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of segments of this test alone."""
    path = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
    monkeypatch.setenv("NUPA_DIR", str(path))
    yield path
    shutil.rmtree(path)


def a_state(name: str = "lab", holder: Process | None = None) -> State:
    netns = Netns("/run/netns/blue", 4026532000, holder, own=holder is not None)
    host = HostNet(
        name="host0",
        number=0,
        mac="02:00:0a:00:00:01",
        ipv4="10.0.0.1",
        addresses=("10.0.0.1",),
        mtu_bytes=1500,
        queues=2,
        netns=netns,
        pump=Process(7, 9),
        lifeline="",
    )
    return State(name, f"/dev/shm/nupa-0-{name}", "0123456789abcdef", True, {"host0": host})


@pytest.mark.parametrize("holder", [None, Process(3, 4)])
def test_what_is_stored_is_what_is_loaded(folder: Path, holder: Process | None) -> None:
    state.store(a_state(holder=holder))
    assert state.load("lab") == a_state(holder=holder)
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    state.forget("lab")
    assert state.load("lab") is None


def test_it_is_no_fabric_and_fabrics_are_no_states(folder: Path) -> None:
    for name in ("lab", "a.net", "x.log"):
        state.store(a_state(name))
    (folder / f"nupa-{os.geteuid()}-real.net").touch()
    assert state.names() == ["a.net", "lab", "x.log"]
    assert registry.names() == ["real.net"]


def test_the_fabric_that_is_meant_is_the_default_one_or_the_only_one() -> None:
    assert state.meant_name() == "default"
    state.store(a_state("lab"))
    assert state.meant_name() == "lab"
    state.store(a_state("other"))
    with pytest.raises(LocalError, match="several fabrics have interfaces, lab, other"):
        state.meant_name()
    state.store(a_state("default"))
    assert state.meant_name() == "default"


def test_hosts_are_found_by_name_and_by_number() -> None:
    found = a_state()
    assert found.host("0") is found.host("host0")
    with pytest.raises(LocalError, match="no interface is up for the host 'host1' of 'lab'"):
        found.host("host1")


@pytest.mark.parametrize(
    "change",
    [
        ("{", "["),
        ('"version": ', '"version": 9'),
        ('"inode": 4026532000', '"inode": "x"'),
        ('"hosts"', '"guests"'),
        ('"number": 0', '"number": null'),
    ],
)
def test_a_damaged_file_is_an_error_that_says_what_to_do(change: tuple[str, str]) -> None:
    state.store(a_state())
    file = Path(state.path_of("lab"))
    file.write_text(file.read_text().replace(*change, 1))
    with pytest.raises(FabricError, match="`nupa net down --fabric lab` takes it away"):
        state.load("lab")


def test_a_folder_that_is_gone_is_an_error(folder: Path) -> None:
    shutil.rmtree(folder)
    with pytest.raises(FabricError, match=r"cannot write .*: No such file"):
        state.store(a_state())
    folder.mkdir()


def test_a_link_in_its_place_is_not_followed(folder: Path) -> None:
    state.store(a_state())
    file = Path(state.path_of("lab"))
    file.rename(folder / "elsewhere")
    file.symlink_to(folder / "elsewhere")
    with pytest.raises(FabricError, match="cannot read"):
        state.load("lab")


def test_the_last_line_of_the_log_is_what_was_said_last() -> None:
    assert state.last_log_line("lab") == ""
    with os.fdopen(state.open_log("lab"), "w") as log:
        log.write("one\ntwo\n")
    assert state.last_log_line("lab") == "two"


def test_a_process_is_another_one_when_it_started_at_another_time() -> None:
    ours = process.of_pid(os.getpid())
    assert ours is not None
    assert ours.alive
    former = Process(ours.pid, ours.start_ticks - 1)
    assert not former.alive
    assert former.open() is None
    process.end(former)  # does nothing to us


def test_a_zombie_is_not_alive_and_is_not_waited_for() -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert process.of_pid(child) is None
    os.waitpid(child, 0)


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"])
def test_end_waits_until_the_process_is_gone(trap: str) -> None:
    script = f"{trap} echo ready; while :; do read line || sleep 1; done"
    child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    found = process.of_pid(child.pid)
    assert found is not None
    process.end(found, grace_s=0.2)
    assert child.wait(0) == (-signal.SIGKILL if trap else -signal.SIGTERM)
    child.stdout.close()


def test_processes_are_found_by_words_of_their_command_lines(folder: Path) -> None:
    word = f"{folder.name}-word"
    argv = ["sh", "-c", "echo ready; read line", word, "more"]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    # exec closes what Popen waits for before there is a command line.
    assert child.stdout.readline() == b"ready\n"
    try:
        assert [found.pid for found in process.find_all(word, "more")] == [child.pid]
        assert process.find_all(word, "less") == []
    finally:
        child.communicate()


def test_a_namespace_is_found_by_its_process_and_is_gone_with_it() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    netns = find(str(child.pid))
    assert netns.alive
    assert netns.inode == Path("/proc/self/ns/net").stat().st_ino
    child.communicate()
    assert not netns.alive
    with pytest.raises(LocalError, match=r"is gone: `nupa net up` makes what is missing"):
        netns.open()


def test_a_port_reads_what_it_writes() -> None:
    assert PumpPort.parse(str(PumpPort(3, 65280, [7, 9]))) == PumpPort(3, 65280, [7, 9])
    for word in ("", "1:2", "1:2:x", "1:2:3:4"):
        with pytest.raises(ValueError):  # noqa: PT011
            PumpPort.parse(word)
