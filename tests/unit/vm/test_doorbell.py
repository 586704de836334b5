# SPDX-License-Identifier: BSD-3-Clause
"""The server of doorbells, as the ivshmem specification has it; its clients are the test's own."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from nupa.base.process import find_all
from nupa.cli import main
from nupa.cli.run.program import environment
from nupa.cli.vm.run import guest_environment
from nupa.fabric import FabricError
from nupa.vm.files import shown, state
from nupa.vm.files.topology import Ivshmem, MachineTopology, TopologyError, changed
from nupa.vm.machine import doorbell, machine
from nupa.vm.machine.doorbell import DoorbellServer
from tests.unit.vm.world import SMALL, World

WAIT_S = 20.0


def count_of(bell: int) -> int:
    """Returns how often it was rung, left as it is: proc_pid_fdinfo(5)."""
    for line in Path(f"/proc/self/fdinfo/{bell}").read_text().splitlines():
        if line.startswith("eventfd-count:"):
            return int(line.split()[1], 16)
    raise AssertionError(f"{bell} is not an eventfd")


@dataclass
class Client:
    """Words that a client has received: its number, the memory, the eventfds of all by number."""

    socket: socket.socket
    number: int = -1
    memory: int = -1
    bells: dict[int, int] = field(default_factory=dict)

    def hear(self) -> tuple[int, list[int]]:
        """Receives one message.  EOFError: the server has closed the connection."""
        try:
            data, files, _, _ = socket.recv_fds(self.socket, 8, 2)
        except ConnectionResetError:  # before it had read what the client said
            data = b""
        if not data:
            raise EOFError
        return struct.unpack("<q", data)[0], files

    def greet(self) -> Client:
        """Returns the order of the specification; returns when its own doorbell has come."""
        assert self.hear() == (doorbell.PROTOCOL_VERSION, [])
        self.number, files = self.hear()
        assert files == []
        memory, files = self.hear()
        assert memory == -1
        (self.memory,) = files
        while self.number not in self.bells:
            self.note()
        return self

    def note(self) -> int:
        """Takes in that one has come or gone; its number."""
        number, files = self.hear()
        if files:
            (self.bells[number],) = files
        else:
            os.close(self.bells.pop(number))
        return number

    def close(self) -> None:
        self.socket.close()
        for file in (self.memory, *self.bells.values()):
            if file >= 0:
                os.close(file)


class Served:
    """A server in a thread of its own."""

    def __init__(self, clients_max: int = 8) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="nupa-test-")
        self.path = f"{self.folder.name}/bell.sock"
        self.memory = os.memfd_create("memory")
        self._listener = doorbell.listen(self.path)
        self._server = DoorbellServer(self._listener, self.memory, clients_max)
        self._ends = threading.Event()
        self._clients = ExitStack()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            self._server.serve(WAIT_S)

    def connect(self) -> Client:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(WAIT_S)
        connection.connect(self.path)
        client = Client(connection)
        self._clients.callback(client.close)
        return client

    def join(self) -> Client:
        return self.connect().greet()

    def close(self) -> None:
        self._ends.set()
        with socket.socket(socket.AF_UNIX) as waker, suppress(OSError):
            waker.connect(self.path)
        self._thread.join(WAIT_S)
        self._server.close()
        self._clients.close()
        self._listener.close()
        os.close(self.memory)
        self.folder.cleanup()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


def test_the_first_client_is_number_0_and_gets_the_memory(served: Served) -> None:
    first = served.join()
    assert first.number == 0
    assert list(first.bells) == [0]
    assert os.path.sameopenfile(first.memory, served.memory)


def test_each_is_told_of_the_others_and_can_ring_them(served: Served) -> None:
    first, second = served.join(), served.join()
    assert first.note() == second.number == 1
    third = served.join()
    assert sorted(third.bells) == [0, 1, 2]
    assert {first.note(), second.note()} == {2}

    os.eventfd_write(third.bells[0], 1)
    os.eventfd_write(second.bells[2], 1)

    assert [count_of(each.bells[each.number]) for each in (first, second, third)] == [1, 0, 1]


def test_who_goes_is_said_and_its_number_is_not_given_again_at_once(served: Served) -> None:
    first, second = served.join(), served.join()
    assert first.note() == second.number
    second.socket.close()
    assert first.note() == 1
    assert list(first.bells) == [0]

    assert served.join().number == 2


def test_who_says_something_is_let_go(served: Served) -> None:
    first, second = served.join(), served.join()
    first.note()
    second.socket.send(b"\0" * 8)
    assert first.note() == second.number
    with pytest.raises(EOFError):
        second.hear()


def test_who_does_not_read_is_let_go_and_holds_up_nobody() -> None:
    served = Served(clients_max=4)
    try:
        deaf = served.join()
        listener = served.join()
        gone = False
        for _ in range(4000):
            served.join().socket.close()
            while not gone and select.select([listener.socket], [], [], 0)[0]:
                number, files = listener.hear()
                gone = number == deaf.number and not files
                for file in files:
                    os.close(file)
            if gone:
                break
        assert gone
    finally:
        served.close()


def test_one_more_than_there_may_be_is_refused() -> None:
    served = Served(clients_max=2)
    try:
        first = served.join()
        served.join()
        first.note()
        with pytest.raises(EOFError):
            served.connect().greet()
        # As soon as one goes, there is room.
        first.socket.close()
        for _ in range(1000):
            with suppress(EOFError):
                assert served.join().number >= 2
                break
        else:
            pytest.fail("no client was let in")
    finally:
        served.close()


def test_another_users_process_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(EOFError):
        served.connect().greet()


def test_the_program_ends_when_its_socket_is_removed(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="nupa-test-") as folder:
        path = Path(folder) / "bell.sock"
        memory = os.memfd_create("memory")
        with doorbell.listen(str(path)) as listener:
            files = (listener.fileno(), memory)
            process = subprocess.Popen(
                [sys.executable, "-m", "nupa.vm.machine.doorbell", str(path), *map(str, files)],
                pass_fds=files,
                cwd=tmp_path,
            )
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WAIT_S)
            connection.connect(str(path))
            client = Client(connection).greet()
            path.unlink()
            assert process.wait(WAIT_S) == 0
            with pytest.raises(EOFError):
                client.hear()
            client.close()
        os.close(memory)


def test_sigterm_ends_the_program(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="nupa-test-") as folder:
        path = str(Path(folder) / "bell.sock")
        with doorbell.listen(path) as listener, (tmp_path / "memory").open("wb") as memory:
            files = (listener.fileno(), memory.fileno())
            process = subprocess.Popen(
                [sys.executable, "-m", "nupa.vm.machine.doorbell", path, *map(str, files)],
                pass_fds=files,
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == -signal.SIGTERM


# --- in a machine -------------------------------------------------------------------------------

RUNG = replace(SMALL, ivshmem=Ivshmem(doorbell=True))


def test_up_starts_a_server_and_down_ends_it(world: World) -> None:
    up = world.up(topology=RUNG)
    assert up == state.load(world.place())
    assert up.doorbell is not None
    assert up.doorbell.alive
    assert [guest.bell for guest in up.guests] == [True, True]
    (found,) = shown.machines()
    assert found["wakeup"] == "doorbell"
    assert [guest["wakeup"] for guest in found["guests"]] == ["doorbell", "doorbell"]

    machine.down("vm")
    assert not up.doorbell.alive


def test_without_its_server_a_machine_polls_and_starts_no_guest(world: World) -> None:
    up = world.up(topology=RUNG)
    assert up.doorbell is not None
    fd = up.doorbell.open()
    assert fd is not None
    signal.pidfd_send_signal(fd, signal.SIGKILL)
    select.select([fd], [], [], WAIT_S)
    os.close(fd)
    world.kill(up, 0)

    assert shown.machines()[0]["wakeup"] == "polling"
    with pytest.raises(FabricError, match="the server of doorbells of 'vm' has ended"):
        machine.start("vm", "host0", world.said.append)
    machine.down("vm")


def test_a_guest_without_a_doorbell_is_said(world: World) -> None:
    up = world.up()
    assert up.doorbell is None
    assert find_all(world.place().bell_socket) == []
    assert [guest.bell for guest in up.guests] == [False, False]
    assert shown.machines()[0]["wakeup"] == "polling"


def test_programs_are_told_where_their_doorbell_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUPA_BELL", raising=False)
    up = world.up(topology=RUNG)
    bell = world.place().bell_socket

    assert environment(up.segment, "host2", None)["NUPA_BELL"] == bell
    assert "NUPA_BELL" not in environment("/dev/shm/vm", "host2", None)
    assert guest_environment(up.guests[0], None)["NUPA_BELL"] == "/run/nupa/bell"
    assert "NUPA_BELL" not in guest_environment(up.guests[0]._replace(bell=False), None)
    # NUPA_BELL may be empty: no doorbell.
    monkeypatch.setenv("NUPA_BELL", "")
    assert environment(up.segment, "host2", None)["NUPA_BELL"] == ""
    assert "NUPA_BELL" not in guest_environment(up.guests[0], None)


def doctor(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Returns the doorbell's line of `nupa doctor`."""
    main(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)
    (found,) = (check for check in checks if check["name"] == "doorbell")
    return dict(found)


def test_doctor_says_whether_the_doorbell_answers(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUPA_BELL", "")
    assert "look for messages by themselves" in doctor(capsys)["follows"]
    monkeypatch.setenv("NUPA_BELL", served.path)
    assert doctor(capsys)["follows"] == "guests that share a fabric wake by interrupts"
    monkeypatch.setenv("NUPA_BELL", f"{served.path}.none")
    found = doctor(capsys)
    assert found["state"] == "limited"
    assert "no server answers" in found["found"]


@pytest.mark.parametrize(
    ("kind", "coherence"), [("cxl", "hardware"), ("cxl", "software"), ("ivshmem", "software")]
)
def test_doorbells_are_of_ivshmem_alone(kind: str, coherence: str) -> None:
    with pytest.raises(TopologyError, match=f"these are {kind} and {coherence}: guests poll"):
        changed(MachineTopology(), kind=kind, coherence=coherence, doorbell=True)
