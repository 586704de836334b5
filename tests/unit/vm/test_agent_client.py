# SPDX-License-Identifier: BSD-3-Clause
"""The client of a guest's agent: links, commands, signals, terminals, and hostile guests."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from nupa.fabric import LocalError, RemoteError
from nupa.vm.agent import agent, frames
from nupa.vm.agent.frames import Ended, RunRequest, TerminalSize
from nupa.vm.agent.relay import Files, Relay, Signals
from nupa.vm.files.place import AGENT_PORTS, MachineFolder, try_lock
from tests.unit.vm.guest import (
    EXIT,
    HELLO,
    RUN,
    SIGNAL,
    STDIN,
    STDOUT,
    Agent,
    frame,
    listen,
    read_frame,
)

DEADLINE_S = 20.0
GREETING = "protocol=1\nkernel=6.12\nhost=host0\ndevice=/dev/dax0.0\nbytes=268435456\n"


@pytest.fixture
def place() -> Iterator[MachineFolder]:
    # Not tmp_path: a socket's path is short.
    folder = tempfile.mkdtemp(prefix="nupa-test-")
    yield MachineFolder("vm", folder)
    shutil.rmtree(folder)


@pytest.fixture
def guest(place: MachineFolder) -> Iterator[MachineFolder]:
    """host0, whose agent runs commands here."""
    listeners = [listen(place.socket("host0", port)) for port in range(AGENT_PORTS)]
    for listener in listeners:
        Agent(listener, GREETING).start()
    yield place
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


Script = Callable[[socket.socket], object]


@pytest.fixture
def scripted(place: MachineFolder) -> Iterator[Callable[[Script], agent.AgentConnection]]:
    """A link to a guest that says HELLO and then does what a function does."""
    threads: list[threading.Thread] = []
    links: list[agent.AgentConnection] = []

    def make(script: Script) -> agent.AgentConnection:
        listener = listen(place.socket("host0", 0))

        def serve() -> None:
            with listener:
                connection, _ = listener.accept()
            with connection:
                connection.sendall(frame(HELLO, GREETING.encode()))
                script(connection)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        links.append(agent.connect(place, "host0", wait_s=DEADLINE_S, ports=[0]))
        return links[-1]

    yield make
    for link in links:
        link.close()
    for thread in threads:
        thread.join(DEADLINE_S)


class Output:
    """Three files: what a command is given, and what it writes."""

    def __init__(self, folder: Path, stdin: bytes = b"") -> None:
        (folder / "in").write_bytes(stdin)
        files = [folder / name for name in ("in", "out", "err")]
        self.files = [files[0].open("rb"), files[1].open("w+b"), files[2].open("w+b")]

    def descriptors(self) -> Files:
        return Files(*(file.fileno() for file in self.files))

    def read(self) -> tuple[bytes, bytes]:
        found = []
        for file in self.files[1:]:
            file.seek(0)
            found.append(file.read())
        for file in self.files:
            file.close()
        return found[0], found[1]


def run(
    place: MachineFolder,
    folder: Path,
    *argv: str,
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
    cwd: str = "/",
    window: TerminalSize | None = None,
) -> tuple[Ended, bytes, bytes]:
    output = Output(folder, stdin)
    command = RunRequest(argv, {"PATH": os.defpath, **(env or {})}, cwd, window)
    with agent.connect(place, "host0") as link:
        ended = Relay(link, output.descriptors()).run(command, DEADLINE_S)
    return ended, *output.read()


def test_both_outputs_come_apart_with_the_exit_code(guest: MachineFolder, tmp_path: Path) -> None:
    ended, out, err = run(guest, tmp_path, "sh", "-c", "echo one; echo two >&2; exit 7")
    assert os.waitstatus_to_exitcode(ended.status) == 7
    assert (out, err) == (b"one\n", b"two\n")


def test_a_signal_that_ends_it_is_told(guest: MachineFolder, tmp_path: Path) -> None:
    ended, _, _ = run(guest, tmp_path, "sh", "-c", "kill -9 $$")
    assert os.waitstatus_to_exitcode(ended.status) == -signal.SIGKILL


def test_input_comes_whole_and_ends(guest: MachineFolder, tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    ended, out, _ = run(guest, tmp_path, "cat", stdin=data)
    assert (ended, out) == (Ended(0), data)


def test_folder_environment_and_window_arrive(guest: MachineFolder, tmp_path: Path) -> None:
    _, out, _ = run(
        guest,
        tmp_path,
        "sh",
        "-c",
        'echo "$PWD $A $FAKE_TTY"',
        env={"A": "b=c"},
        cwd=str(tmp_path),
        window=TerminalSize(24, 132),
    )
    assert out.decode() == f"{tmp_path} b=c 1 24x132\n"


def test_what_cannot_be_started_says_why(guest: MachineFolder, tmp_path: Path) -> None:
    ended, _, _ = run(guest, tmp_path, "no-such-program")
    why = "cannot run no-such-program in the guest: No such file or directory"
    assert ended == Ended(0, errno.ENOENT, why)


def test_a_port_takes_one_client_after_the_other(guest: MachineFolder, tmp_path: Path) -> None:
    for number in range(2 * AGENT_PORTS):
        assert run(guest, tmp_path, "echo", str(number))[1] == f"{number}\n".encode()


def test_as_many_commands_as_ports_run_at_once_and_one_more_is_refused(
    guest: MachineFolder,
) -> None:
    links = [agent.connect(guest, "host0") for _ in range(AGENT_PORTS)]
    assert {link.hello["device"] for link in links} == {"/dev/dax0.0"}
    with pytest.raises(LocalError, match="8 commands run in host0 already") as caught:
        agent.connect(guest, "host0")
    assert caught.value.errno == errno.EBUSY
    links[3].close()
    agent.connect(guest, "host0").close()
    for link in links:
        link.close()


def test_a_closed_link_gives_its_port_back_and_no_lock_stays(guest: MachineFolder) -> None:
    agent.connect(guest, "host0", ports=[0]).close()
    lock = try_lock(guest.port_lock("host0", 0))
    assert lock is not None
    os.close(lock)


def test_closing_the_link_ends_the_command(guest: MachineFolder) -> None:
    ours, theirs = os.pipe()
    with agent.connect(guest, "host0") as link:
        # It holds the pipe as long as it lives, and so does what it starts.
        script = f"exec 9>/proc/{os.getpid()}/fd/{theirs}; echo up >&9; sleep 1000 9>&9"
        link.socket.setblocking(True)
        link.socket.sendall(frames.run(RunRequest(["sh", "-c", script], {"PATH": os.defpath}, "/")))
        assert os.read(ours, 10) == b"up\n"
        os.close(theirs)
    assert os.read(ours, 1) == b""
    os.close(ours)


def test_nobody_at_the_sockets_is_a_guest_that_is_not_up(place: MachineFolder) -> None:
    with pytest.raises(RemoteError, match=r"host0 is not up: `nupa vm log host0 --fabric vm`"):
        agent.connect(place, "host0", wait_s=0.1)
    listen(place.socket("host0", 0)).close()
    with pytest.raises(RemoteError) as caught:
        agent.connect(place, "host0", wait_s=0.1, ports=[0])
    assert caught.value.errno == errno.ECONNREFUSED


def test_a_machine_that_was_taken_down_meanwhile_is_not_up(place: MachineFolder) -> None:
    gone = MachineFolder("vm", f"{place.folder}/gone")
    with pytest.raises(RemoteError, match="'vm' was taken down") as caught:
        agent.try_link(gone, "host0", 0)
    assert caught.value.errno == errno.ECONNREFUSED


def test_a_guest_that_says_nothing_is_given_up(place: MachineFolder) -> None:
    with (
        listen(place.socket("host0", 0)),
        pytest.raises(RemoteError, match=r"did not answer in 0\.1 s, it boots or hangs") as caught,
    ):
        agent.connect(place, "host0", wait_s=0.1, ports=[0])
    assert caught.value.errno == errno.ETIMEDOUT


@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (frame(STDOUT, b"left over"), "does not begin with HELLO, but with frames of kind 17"),
        (frame(HELLO, b"protocol=9\n"), "speaks protocol 9, this NUPA speaks 1"),
        (frame(HELLO, b""), "speaks protocol none"),
        (frame(HELLO, b"\xff\xfe"), "is not text"),
        (struct.pack("<II", HELLO, 1 << 31), "kind 16 with 2147483648 bytes"),
        (struct.pack("<II", 99, 0), "kind 99 with 0 bytes"),
        (b"", "host0 has gone"),
    ],
)
def test_a_guest_that_greets_otherwise_is_refused(
    place: MachineFolder, greeting: bytes, said: str
) -> None:
    with listen(place.socket("host0", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(greeting)

        thread = threading.Thread(target=serve)
        thread.start()
        link = agent.try_link(place, "host0", 0)
        assert link is not None
        with link, pytest.raises(RemoteError) as caught:
            link.wait_hello(DEADLINE_S)
        thread.join(DEADLINE_S)
    assert said in str(caught.value)


def test_the_next_port_is_tried_when_one_is_out_of_step(place: MachineFolder) -> None:
    with listen(place.socket("host0", 0)) as odd, listen(place.socket("host0", 1)) as good:
        answers = [(odd, frame(STDOUT, b"left")), (good, frame(HELLO, GREETING.encode()))]

        def serve() -> None:
            for listener, answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(answer)
                    connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        agent.connect(place, "host0", ports=[0, 1]).close()
        thread.join(DEADLINE_S)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (frame(HELLO, GREETING.encode()), "HELLO while a command ran"),
        (frame(EXIT, b"\0"), "an EXIT frame of 1 bytes"),
        (struct.pack("<II", STDOUT, frames.PAYLOAD_BYTES_MAX + 1), "65537 bytes"),
        (struct.pack("<II", RUN, 0), "kind 1 with 0 bytes"),
        (b"", "host0 has gone while the command ran"),
        (frame(STDOUT, b"x")[:-1], "host0 has gone while the command ran"),
    ],
)
def test_a_guest_that_misbehaves_is_an_error(
    scripted: Callable[[Script], agent.AgentConnection], tmp_path: Path, sent: bytes, said: str
) -> None:
    def script(connection: socket.socket) -> None:
        read_frame(connection)
        connection.sendall(sent)

    output = Output(tmp_path)
    link = scripted(script)
    with pytest.raises(RemoteError, match=said):
        Relay(link, output.descriptors()).run(RunRequest(["x"], {}, "/"), DEADLINE_S)
    output.read()


def test_output_that_came_before_the_guest_died_is_shown(
    scripted: Callable[[Script], agent.AgentConnection], tmp_path: Path
) -> None:
    def script(connection: socket.socket) -> None:
        read_frame(connection)
        connection.sendall(frame(STDOUT, b"y" * 60000) * 3)

    output = Output(tmp_path)
    link = scripted(script)
    with pytest.raises(RemoteError, match="host0 has gone"):
        Relay(link, output.descriptors()).run(RunRequest(["x"], {}, "/"), DEADLINE_S)
    assert output.read()[0] == b"y" * 180000


def test_a_command_that_does_not_end_in_time_is_given_up(
    guest: MachineFolder, tmp_path: Path
) -> None:
    output = Output(tmp_path)
    command = RunRequest(["sleep", "1000"], {"PATH": os.defpath}, "/")
    with agent.connect(guest, "host0") as link:
        relay = Relay(link, output.descriptors())
        with pytest.raises(RemoteError, match=r"did not end in 0\.2 s"):
            relay.run(command, 0.2)
    output.read()


def test_signals_of_ours_reach_the_command(
    scripted: Callable[[Script], agent.AgentConnection], tmp_path: Path
) -> None:
    found: list[tuple[int, bytes] | None] = []

    def script(connection: socket.socket) -> None:
        while (got := read_frame(connection)) is not None and got[0] != STDIN:
            found.append(got)
        os.kill(os.getpid(), signal.SIGUSR1)
        found.append(read_frame(connection))
        connection.sendall(frame(EXIT, struct.pack("<i", signal.SIGUSR1)))

    output = Output(tmp_path)
    link = scripted(script)
    before = signal.getsignal(signal.SIGUSR1)
    with Signals() as signals:
        ended = Relay(link, output.descriptors(), signals).run(
            RunRequest(["x"], {}, "/"), DEADLINE_S
        )
    output.read()
    assert signal.getsignal(signal.SIGUSR1) is before
    assert ended == Ended(signal.SIGUSR1)
    assert found[-1] == (SIGNAL, struct.pack("<I", signal.SIGUSR1))


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.read() == b""
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_behind_what_the_guest_does_not_take_hangs_up(
    scripted: Callable[[Script], agent.AgentConnection], tmp_path: Path
) -> None:
    hung_up = threading.Event()
    output = Output(tmp_path)
    link = scripted(lambda _: hung_up.wait(DEADLINE_S))
    with suppress(BlockingIOError):
        while True:
            link.socket.send(bytes(4096))
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        ended = Relay(link, output.descriptors(), signals).run(
            RunRequest(["x"], {}, "/"), DEADLINE_S
        )
    hung_up.set()
    output.read()
    assert ended == Ended(signal.SIGINT)


def test_output_that_nobody_reads_ends_it_as_a_broken_pipe(
    guest: MachineFolder, tmp_path: Path
) -> None:
    output = Output(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    with agent.connect(guest, "host0") as link:
        files = output.descriptors()._replace(stdout=writing)
        ended = Relay(link, files).run(RunRequest(["yes"], {"PATH": os.defpath}, "/"), DEADLINE_S)
    os.close(writing)
    output.read()
    assert ended == Ended(signal.SIGPIPE)


def test_a_slow_reader_gets_everything(guest: MachineFolder, tmp_path: Path) -> None:
    output = Output(tmp_path)
    reading, writing = os.pipe()
    got = bytearray()

    def read() -> None:
        while data := os.read(reading, 1000):
            got.extend(data)

    thread = threading.Thread(target=read)
    thread.start()
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4096)"
    with agent.connect(guest, "host0") as link:
        files = output.descriptors()._replace(stdout=writing)
        command = RunRequest([sys.executable, "-c", script], {}, "/")
        ended = Relay(link, files).run(command, DEADLINE_S)
    os.close(writing)
    thread.join(DEADLINE_S)
    os.close(reading)
    output.read()
    assert (ended, bytes(got)) == (Ended(0), bytes(range(256)) * 4096)


def test_a_command_that_does_not_fit_is_refused() -> None:
    with pytest.raises(LocalError, match="at most 65536 can be sent") as caught:
        frames.run(RunRequest(["x" * frames.PAYLOAD_BYTES_MAX], {}, "/"))
    assert caught.value.errno == errno.E2BIG
    with pytest.raises(LocalError, match="holds a NUL"):
        frames.run(RunRequest(["a\0b"], {}, "/"))
    # 8 bytes of head, "/", "1" and "" with a NUL each.
    room = frames.PAYLOAD_BYTES_MAX - 8 - 2 - 2 - 1
    assert len(frames.run(RunRequest(["y" * room], {}, "/"))) == 8 + frames.PAYLOAD_BYTES_MAX


def test_frames_are_read_however_they_are_cut() -> None:
    whole = frame(STDOUT, b"abc") + frame(EXIT, b"\0\0\0\0") + frame(STDOUT, b"")
    for step in range(1, len(whole) + 1):
        reader, found = frames.FrameReader(), []
        for at in range(0, len(whole), step):
            found += reader.feed(whole[at : at + step])
        assert found == [(STDOUT, b"abc"), (EXIT, b"\0\0\0\0"), (STDOUT, b"")]
