# SPDX-License-Identifier: BSD-3-Clause
"""Machines made, shown, healed and taken down; QEMU is a program of ours that says HELLO."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from nupa.fabric import FabricError, LocalError, registry
from nupa.vm.agent import agent
from nupa.vm.boot.boot import BootFiles
from nupa.vm.files import place, shown, state
from nupa.vm.files.topology import Guests, MachineTopology
from nupa.vm.machine import launch, machine
from tests.unit.vm.world import DEADLINE_S, SMALL, World


def test_up_says_each_step_and_down_leaves_nothing(world: World) -> None:
    up = world.up()
    assert [guest.state for guest in up.guests] == ["up", "up"]
    assert up == state.load(world.place())
    segment = world.segments / f"nupa-{os.geteuid()}-vm"
    assert up.segment == str(segment)
    found = segment.stat()
    assert found.st_size == SMALL.memory_bytes
    assert found.st_blocks * 512 >= SMALL.memory_bytes
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert stat.S_IMODE(world.run.joinpath("nupa-vm-vm").stat().st_mode) == 0o700
    assert [line.split(" (pid")[0] for line in world.said[:2]] == [
        f"host{i}: booting on CPU {guest.cpu}" for i, guest in enumerate(up.guests)
    ]
    assert sorted(line.split(" in ")[0] for line in world.said[2:]) == ["host0: up", "host1: up"]
    assert world.said[-1].endswith(": /dev/dax0.0, 64MiB")
    assert machine.down("vm") == machine.Down(was_up=True, ended=2, segment=True)
    assert world.left() == []


def test_each_guest_has_a_session_and_a_core_of_its_own(world: World) -> None:
    up = world.up()
    cpus = sorted(os.sched_getaffinity(0))
    for number, guest in enumerate(up.guests):
        assert guest.process is not None
        assert os.getsid(guest.process.pid) != os.getsid(0)
        assert os.sched_getaffinity(guest.process.pid) == {cpus[number % len(cpus)]}
        files = set()
        for fd in Path(f"/proc/{guest.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it was closed meanwhile
                files.add(str(fd.readlink()))
        assert str(Path(f"/proc/{guest.process.pid}/fd/0").readlink()) == os.devnull
        assert up.segment in files


def test_a_fabric_in_a_machine_is_in_use(world: World) -> None:
    up = world.up()
    assert registry.in_use(up.segment)
    machine.down("vm")
    assert not registry.in_use(up.segment)


def test_a_name_is_taken_once(world: World) -> None:
    world.up()
    with pytest.raises(LocalError, match="'vm' is up already: `nupa vm ls`") as caught:
        world.up()
    assert caught.value.errno == errno.EEXIST
    world.up("other", replace(SMALL, guests=Guests(1, 256 << 20)))
    assert place.names() == ["other", "vm"]


def test_a_fabric_of_the_name_is_not_overwritten(world: World) -> None:
    path = Path(registry.path_of("vm"))
    path.write_bytes(b"mine")
    with pytest.raises(LocalError, match="a fabric is named 'vm'"):
        world.up()
    assert path.read_bytes() == b"mine"
    path.unlink()


@pytest.mark.parametrize("name", ["", "a/b", "-x", "x" * 33, ".."])
def test_what_is_no_name_is_refused(world: World, name: str) -> None:
    with pytest.raises(LocalError, match="is not a name for a machine"):
        world.up(name)


def test_a_guest_that_dies_takes_all_down_after_its_last_words(world: World) -> None:
    (world.how / "host1.dies").touch()
    with pytest.raises(FabricError, match="host1 ended while it booted; the end of its console"):
        world.up()
    assert "host1 | qemu: host1 has no luck" in world.said
    assert "host1 | nupa: step one of host1" in world.said
    assert not [line for line in world.said if "\x1b" in line]
    assert world.left() == []


def test_a_guest_that_stalls_is_given_up_after_its_last_words(world: World) -> None:
    (world.how / "host0.silent").touch()

    def said(line: str) -> None:
        world.said.append(line)
        console = Path(world.place().log("host0"))
        while line.startswith("host1: booting") and b"step one" not in console.read_bytes():
            os.sched_yield()

    with pytest.raises(FabricError, match=r"host0 is not up after 0\.1 s"):
        machine.up("vm", SMALL, world.boot, said, timeout_s=0.1)
    assert "host0 | nupa: step one of host0" in world.said
    assert world.left() == []


@pytest.mark.parametrize("size", ["1", "many", ""])
def test_a_guest_that_has_other_memory_is_refused(world: World, size: str) -> None:
    (world.how / "host0.bytes").write_text(size)
    with pytest.raises(FabricError, match=f"{size or 'no'} bytes, and 67108864 were expected"):
        world.up()
    assert world.left() == []


def test_a_qemu_that_is_not_there_is_said(world: World) -> None:
    boot = world.boot()._replace(qemu=("/no/qemu",))
    with pytest.raises(FabricError, match="cannot start /no/qemu for host0: No such file"):
        machine.up("vm", SMALL, lambda: boot, world.said.append)
    assert world.left() == []


def test_an_interrupt_takes_all_down(world: World) -> None:
    def interrupted(line: str) -> None:
        if line.startswith("host1: booting"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        machine.up("vm", SMALL, world.boot, interrupted)
    assert world.left() == []


def test_an_old_qemu_is_refused_before_anything_is_made(world: World) -> None:
    boot = world.boot()._replace(qemu_version=(7, 2, 0))
    with pytest.raises(LocalError, match="no volatile CXL memory"):
        machine.up("vm", MachineTopology(guests=SMALL.guests), lambda: boot, world.said.append)
    assert world.left() == []


def test_too_little_room_is_said_before_anything_is_fetched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never() -> BootFiles:
        raise AssertionError

    vast = replace(SMALL, memory_bytes=64 << 30)
    with pytest.raises(LocalError, match=r"has \d+MiB free, and the guests' memory takes 64GiB"):
        machine.up("vm", vast, never, world.said.append)
    greedy = replace(SMALL, guests=Guests(16, 64 << 30))
    with pytest.raises(LocalError, match=r"16 guests of 64GiB .* need more than the"):
        machine.up("vm", greedy, never, world.said.append)
    monkeypatch.setenv("NUPA_DIR", "/nowhere")
    with pytest.raises(LocalError, match="cannot use /nowhere: No such file"):
        machine.up("vm", SMALL, never, world.said.append)


def test_a_folder_too_long_for_sockets_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = world.run / ("d" * 80)
    long.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(LocalError, match="107 is the limit"):
        world.up()
    long.rmdir()


def test_a_folder_that_others_may_enter_is_not_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run.chmod(0o755)
    assert place.parent() != str(world.run)
    world.run.chmod(0o700)
    assert place.parent() == str(world.run)
    link = world.run / "link"
    link.symlink_to(world.how)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(link))
    assert place.parent() != str(link)
    link.unlink()


def test_a_killed_guest_is_dead_and_started_again_with_the_same_words(world: World) -> None:
    up = world.up()
    before = up.guests[1].process
    assert before is not None
    world.kill(up, 1)
    assert [each["state"] for each in shown.machines()[0]["guests"]] == ["up", "dead"]
    again = machine.start("vm", "host1", world.said.append, timeout_s=DEADLINE_S)
    assert [guest.state for guest in again.guests] == ["up", "up"]
    assert again.guests[0] == up.guests[0]
    assert again.guests[1].argv == up.guests[1].argv
    assert again.guests[1].process != before
    agent.connect(world.place(), "host1").close()


def test_a_guest_starts_again_from_what_it_booted_from_first(world: World) -> None:
    up = world.up()
    argv = up.guests[0].argv
    (world.how / "initramfs").unlink()
    assert Path(argv[argv.index("-initrd") + 1]).read_bytes() == b"files"
    with pytest.raises(FabricError, match=r"cannot copy .*: No such file"):
        world.up("other")


def test_only_a_dead_guest_is_started(world: World) -> None:
    world.up()
    with pytest.raises(LocalError, match=r"host0 is up, its QEMU is pid \d+: end that first"):
        machine.start("vm", "0", world.said.append)
    with pytest.raises(LocalError, match="has no guest 'host2': its guests are host0, host1, and"):
        machine.start("vm", "host2", world.said.append)
    with pytest.raises(LocalError, match="no machine is named 'other'"):
        machine.start("other", "host0", world.said.append)


def test_a_guest_that_does_not_come_up_again_leaves_the_others(world: World) -> None:
    up = world.up()
    world.kill(up, 1)
    (world.how / "host1.dies").touch()
    with pytest.raises(FabricError, match="host1 ended while it booted"):
        machine.start("vm", "host1", world.said.append)
    assert [each["state"] for each in shown.machines()[0]["guests"]] == ["up", "dead"]


def test_down_does_not_end_what_has_a_guests_pid_now(world: World) -> None:
    up = world.up()
    world.kill(up, 0)
    other = up.guests[0]._replace(process=up.guests[0].process._replace(pid=os.getpid()))  # type: ignore[union-attr]
    state.store(world.place(), up.with_guest(other))
    assert machine.down("vm").ended == 1


def test_down_finds_guests_that_were_never_written_down(world: World) -> None:
    world.up()
    Path(world.place().file("machine.json")).unlink()
    assert shown.machines()[0]["error"] == "half made"
    assert machine.down("vm").ended == 2
    assert world.left() == []


def test_down_finds_guests_whose_folder_is_gone(world: World) -> None:
    world.up()
    shutil.rmtree(world.place().folder)
    assert machine.down("vm") == machine.Down(was_up=True, ended=2, segment=True)
    assert world.left() == []


def test_down_of_what_is_not_up_is_no_error(world: World) -> None:
    assert machine.down("vm") == machine.Down(was_up=False, ended=0, segment=False)
    world.up()
    machine.down("vm")
    assert not machine.down("vm").was_up


def test_a_machine_in_which_a_command_runs_stays_unless_forced(world: World) -> None:
    world.up()
    with agent.connect(world.place(), "host1"):
        with pytest.raises(LocalError, match="1 command runs in host1") as caught:
            machine.down("vm")
        assert caught.value.errno == errno.EBUSY
        assert machine.down("vm", force=True).ended == 2


def test_down_waits_for_nobody_who_changes_the_machine(world: World) -> None:
    world.up()
    with (
        launch.locked(world.place(), "try"),
        pytest.raises(LocalError, match="cannot take down 'vm': another `nupa vm` starts or ends"),
    ):
        machine.down("vm")


def test_down_with_force_ends_an_up_that_waits(world: World) -> None:
    (world.how / "host0.silent").touch()
    booting = threading.Event()
    caught: list[BaseException] = []

    def said(line: str) -> None:
        world.said.append(line)
        if line.startswith("host1: booting"):
            booting.set()

    def up() -> None:
        try:
            machine.up("vm", SMALL, world.boot, said, timeout_s=DEADLINE_S)
        except FabricError as error:
            caught.append(error)

    thread = threading.Thread(target=up)
    thread.start()
    assert booting.wait(DEADLINE_S)
    machine.down("vm", force=True)
    thread.join(DEADLINE_S)
    assert "ended while it booted" in str(caught[0])
    assert world.left() == []


def damage(value: dict[str, object], key: str, wrong: object) -> dict[str, object]:
    return {**value, key: wrong}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: damage(value, "version", 99), "it has version 99"),
        (lambda value: damage(value, "memory_bytes", "x"), "`memory_bytes` is 'x'"),
        (lambda value: damage(value, "guests", {}), "`guests` is {}"),
        (lambda value: damage(value, "guests", [{}]), "` is missing"),
        (lambda value: damage(value, "name", "other"), "of a machine 'other'"),
        (
            lambda value: damage(value, "guests", [{**value["guests"][0], "process": [0, 1]}]),
            "`process` is [0, 1]",
        ),
        (
            lambda value: damage(value, "guests", [{**value["guests"][0], "argv": [1]}]),
            "`argv` is 1",
        ),
        (lambda _: {}, "the key `version` is missing"),
        (lambda _: [], "the key `version` is missing"),
    ],
    ids=["version", "size", "guests", "guest", "name", "process", "argv", "object", "array"],
)
def test_a_damaged_state_is_said_and_taken_down(
    world: World, change: Callable[[object], object], said: str
) -> None:
    world.up()
    path = Path(world.place().file("machine.json"))
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(FabricError) as caught:
        state.load(world.place())
    assert said in str(caught.value)
    assert "`nupa vm down vm`" in str(caught.value)
    assert said in shown.machines()[0]["error"]
    assert machine.down("vm").ended == 2


def test_a_state_that_is_no_json_or_too_long_is_said(world: World) -> None:
    world.up()
    path = Path(world.place().file("machine.json"))
    for data in (b"\xff", b"{", b" " * ((1 << 20) + 1)):
        path.write_bytes(data)
        with pytest.raises(FabricError, match="cannot read"):
            state.load(world.place())


def test_several_machines_want_a_name(world: World) -> None:
    assert place.meant_name() == "vm"
    small = replace(SMALL, guests=Guests(1, 256 << 20))
    world.up("one", small)
    assert place.meant_name() == "one"
    world.up("two", small)
    with pytest.raises(
        LocalError, match="several machines are up, one, two: name one with --fabric"
    ):
        place.meant_name()


def test_sockets_of_a_guest_that_is_gone_are_no_way_to_it(world: World) -> None:
    up = world.up()
    world.kill(up, 0)
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(world.place().socket("host0", 0))
