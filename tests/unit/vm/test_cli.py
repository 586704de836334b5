# SPDX-License-Identifier: BSD-3-Clause
"""`nupa vm`: what it prints, its exit codes, one line for each error; QEMU is a program of ours."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nupa.cli import main
from nupa.cli.vm.run import guest_environment
from nupa.fabric import FabricError
from nupa.vm.agent import agent
from nupa.vm.boot import boot
from nupa.vm.files.state import Guest
from tests.unit.vm.world import DEADLINE_S, World

NUPA = (sys.executable, "-m", "nupa.cli")
SMALL = ("--kind", "ivshmem", "--mem", "64M", "--topology", "small.toml")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def nupa_vm(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """Runs `nupa vm`: exit code, stdout, stderr."""
    monkeypatch.setattr(boot, "prepare", lambda *_, **__: world.boot())
    monkeypatch.chdir(world.how)
    Path("small.toml").write_text('[guests]\nram = "256M"\n')
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*argv: str) -> tuple[int, str, str]:
        try:
            code: object = main(["vm", *argv])
        except SystemExit as error:
            code = error.code
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert isinstance(code, int)
        return (code, *capfd.readouterr())

    return run


@pytest.fixture
def up(nupa_vm: Run) -> Run:
    """The same, with a machine up."""
    assert nupa_vm("up", *SMALL)[0] == 0
    return nupa_vm


def test_up_tells_steps_on_stderr_and_what_is_up_on_stdout(nupa_vm: Run) -> None:
    code, out, err = nupa_vm("up", *SMALL)
    assert (code, out) == (
        0,
        "vm is up: host0 to host1 share 64MiB (ivshmem); "
        "this machine is host2 of the fabric 'vm'\n",
    )
    assert [line.split(":")[0] for line in err.splitlines()].count("host0") == 2
    assert nupa_vm("down") == (0, "vm is down: 2 guests ended, its fabric is removed\n", "")
    assert nupa_vm("down") == (0, "no machine is named 'vm': nothing to do\n", "")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("up", "--kind", "pmem"), "`kind` is 'pmem': choose one of cxl, ivshmem"),
        (("up", "--coherence", "no"), "`coherence` is 'no': choose one of hardware, software"),
        (("up", "--mem", "300M"), "CXL decodes multiples of 256MiB, as 512MiB"),
        (("up", "--kind", "ivshmem", "--mem", "96M"), "has a power of two, as 128M"),
        (("up", "--guests", "0"), "`count` is 0: choose 1 to 16"),
        (("up", "--guests", "17"), "`count` is 17: choose 1 to 16"),
        (("up", "--topology", "none.toml"), "none.toml: No such file or directory"),
        (("up", "--name", "a/b"), "'a/b' is not a name for a machine"),
        (
            ("run", "host0", "--", "true"),
            "no machine is named 'vm': `nupa vm up --fabric vm` makes",
        ),
        (("shell", "host0"), "no machine is named 'vm'"),
        (("start", "host0"), "no machine is named 'vm'"),
        (("log",), "no machine is named 'vm'"),
        (("down", "a/b"), "'a/b' is not a name for a machine"),
    ],
)
def test_errors_are_one_line(nupa_vm: Run, argv: tuple[str, ...], said: str) -> None:
    code, out, err = nupa_vm(*argv)
    assert (code, out) == (1, "")
    assert err.startswith("nupa: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("up", "--mem", "much"), "'much' is not a size: write it as 4096, 64K, 512M or 1G"),
        (("up", "--timeout", "0"), "'0' is not a time above 0"),
        (("up", "--guests", "two"), "invalid int value: 'two'"),
        (("run", "host0"), "name a command after --"),
        (("run",), "the following arguments are required: HOST"),
        ((), "the following arguments are required: COMMAND"),
    ],
)
def test_wrong_command_lines_are_exit_2(nupa_vm: Run, argv: tuple[str, ...], said: str) -> None:
    code, out, err = nupa_vm(*argv)
    assert (code, out) == (2, "")
    assert said in err


def test_what_cannot_be_fetched_is_one_line_and_leaves_nothing(
    nupa_vm: Run, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise FabricError("no mirror: write one to the list of apt")

    monkeypatch.setattr(boot, "prepare", fails)
    assert nupa_vm("up", *SMALL) == (1, "", "nupa: no mirror: write one to the list of apt\n")
    assert world.left() == []


def test_a_guest_that_dies_shows_its_console(nupa_vm: Run, world: World) -> None:
    (world.how / "host1.dies").touch()
    code, out, err = nupa_vm("up", *SMALL)
    assert (code, out) == (1, "")
    assert "host1 | qemu: host1 has no luck\n" in err
    assert err.splitlines()[-1].startswith("nupa: host1 ended while it booted")


def test_ls_shows_guests_and_the_machine(up: Run, world: World) -> None:
    _, out, _ = up("ls")
    head, *rows = [line.split() for line in out.splitlines()]
    assert head == ["MACHINE", "HOST", "STATE", "PID", "KIND", "MEMORY", "QEMU", "UPTIME"]
    assert [row[:3] for row in rows] == [
        ["vm", "host0", "up"],
        ["vm", "host1", "up"],
        ["vm", "host2", "this"],
    ]
    found = json.loads(up("ls", "--json")[1])
    assert found[0]["qemu"] == "11.1.3"
    assert found[0]["memory_bytes"] == 64 << 20
    assert [guest["state"] for guest in found[0]["guests"]] == ["up", "up"]
    assert str(found[0]["guests"][1]["pid"]) == rows[1][3]
    Path(world.place().file("machine.json")).write_text("{")
    assert "cannot read" in up("ls")[1]


def test_ls_of_nothing_says_what_makes_one(nupa_vm: Run) -> None:
    assert nupa_vm("ls") == (0, "no machine is up: `nupa vm up` makes one\n", "")
    assert nupa_vm("ls", "--json") == (0, "[]\n", "")


def test_logs_of_all_guests_or_of_one(up: Run) -> None:
    _, out, _ = up("log")
    assert "host0 | nupa: step one of host0\n" in out
    assert "host1 | nupa: step one of host1\n" in out
    assert up("log", "host1")[1].splitlines()[0] == "nupa: step one of host1"
    assert "\x1b" not in out
    assert "has no guest 'host9'" in up("log", "host9")[2]


def test_following_a_log_ends_with_the_guests(up: Run, world: World) -> None:
    process = subprocess.Popen([*NUPA, "vm", "log", "--follow"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = {process.stdout.readline() for _ in range(4)}
    assert "host1 | nupa: step one of host1\n" in seen
    with Path(world.place().log("host0")).open("a") as log:
        log.write("news\n")
    assert process.stdout.readline() == "host0 | news\n"
    assert up("down")[0] == 0
    with process:
        assert process.stdout.read() == ""
    assert process.returncode == 0


def test_a_command_has_both_outputs_and_its_exit_code(up: Run) -> None:
    script = "echo $NUPA_HOST $NUPA_FABRIC; echo two >&2; exit 42"
    assert up("run", "host1", "--", "sh", "-c", script) == (42, "host1 /dev/nupa0\n", "two\n")
    assert up("run", "1", "--", "sh", "-c", "kill -TERM $$")[0] == 128 + signal.SIGTERM


def test_what_cannot_be_started_is_126_or_127(up: Run, world: World) -> None:
    code, _, err = up("run", "host0", "--", "no-such-program")
    assert (code, err.splitlines()) == (
        127,
        ["nupa: cannot run no-such-program in the guest: No such file or directory"],
    )
    plain = world.how / "plain"
    plain.touch()
    assert up("run", "host0", "--", str(plain))[0] == 126


@pytest.mark.usefixtures("up")
def test_the_last_host_is_this_machine() -> None:
    script = "echo $NUPA_HOST $NUPA_FABRIC"
    done = subprocess.run(
        [*NUPA, "vm", "run", "host2", "--", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    host, fabric = done.stdout.split()
    assert host == "host2"
    assert fabric.endswith(f"/nupa-{os.geteuid()}-vm")


def test_a_guest_that_is_not_there_or_dead_is_said(up: Run) -> None:
    assert "has no guest 'host7'" in up("run", "host7", "--", "true")[2]
    found = json.loads(up("ls", "--json")[1])
    os.kill(found[0]["guests"][0]["pid"], signal.SIGKILL)
    code, _, err = up("run", "host0", "--", "true")
    assert code == 1
    assert "`nupa vm start host0 --fabric vm` starts it again" in err


def test_down_without_a_name_means_vm_and_no_other(nupa_vm: Run) -> None:
    assert nupa_vm("up", *SMALL, "--name", "other")[0] == 0
    assert nupa_vm("down") == (0, "no machine is named 'vm': nothing to do\n", "")
    assert nupa_vm("run", "host0", "--", "true")[0] == 0


def test_a_busy_machine_stays_unless_forced(up: Run, world: World) -> None:
    with agent.connect(world.place(), "host0"):
        code, _, err = up("down")
        assert code == 1
        assert "1 command runs in host0" in err
        assert up("down", "--force")[0] == 0


def test_a_fabric_of_a_machine_goes_with_it(up: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "vm"]) == 1
    assert "`nupa vm down vm` takes both down" in capfd.readouterr().err
    assert main(["down", "vm", "--force"]) == 0
    assert up("down")[1] == "vm is down: 2 guests ended\n"


def test_start_wants_a_dead_guest(up: Run) -> None:
    assert "host0 is up" in up("start", "host0")[2]


def test_a_shell_wants_a_terminal(up: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        code, _, err = up("shell", "host0")
    assert code == 1
    assert "`nupa vm run host0 -- sh` can read from a pipe" in err


def test_the_environment_goes_along_but_for_what_is_about_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key, value in {
        "PATH": "/bin",
        "LC_ALL": "C",
        "NUPA_QUIET": "1",
        "NUPA_DIR": "/x",
        "PYTHONPATH": "/y",
        "XDG_RUNTIME_DIR": "/z",
        "SSH_AUTH_SOCK": "/s",
    }.items():
        monkeypatch.setenv(key, value)
    env = guest_environment(Guest("host0", 0, ("qemu",)), "relay")
    assert env["PATH"] == "/bin:/usr/local/sbin:/usr/sbin:/sbin"
    assert (env["LC_ALL"], env["NUPA_QUIET"], env["PYTHONPATH"]) == ("C", "1", "/y")
    assert (env["NUPA_FABRIC"], env["NUPA_HOST"]) == ("/dev/nupa0", "host0")
    assert env["NUPA_MOVER"] == "relay"
    assert "libnupa_shim.so" in env["LD_PRELOAD"]
    assert not {"NUPA_DIR", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK"} & env.keys()


@pytest.mark.usefixtures("up")
def test_a_command_gets_our_signals() -> None:
    script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do read line || :; done"
    with subprocess.Popen(
        [*NUPA, "vm", "run", "host0", "--", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "caught\n"
        assert process.wait(DEADLINE_S) == 9


@pytest.mark.usefixtures("up")
def test_the_end_of_its_reader_ends_a_command() -> None:
    pipe = subprocess.run(
        [
            "bash",
            "-c",
            f"{sys.executable} -m nupa.cli vm run host0 -- yes | head -1; echo ${{PIPESTATUS[0]}}",
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert pipe.stdout.split() == ["y", str(128 + signal.SIGPIPE)]


@pytest.mark.usefixtures("nupa_vm")
def test_an_interrupted_up_leaves_nothing(world: World) -> None:
    (world.how / "host0.silent").touch()
    script = f"""
import pathlib, sys
from nupa.cli import main
from nupa.vm.boot import boot
kernel, initramfs = pathlib.Path("/no/kernel"), pathlib.Path("initramfs")
files = boot.BootFiles({world.boot().qemu!r}, (11, 1, 3), kernel, initramfs, "6.12")
boot.prepare = lambda *_, **__: files
sys.exit(main(["vm", "up", *{SMALL!r}]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "host0: booting" in process.stderr.readline()
        assert "host1: booting" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGINT
    (world.how / "host0.silent").unlink()
    (world.how / "small.toml").unlink()
    assert world.left() == []


class Screen:
    """`nupa vm shell` on a terminal of ours."""

    def __init__(self, *command: str) -> None:
        self.ours, theirs = pty.openpty()
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.process = subprocess.Popen(
            [*NUPA, "vm", "shell", "host0", "--", *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )

    def read_until(self, text: bytes) -> bytes:
        found = b""
        while text not in found:
            assert select.select([self.ours], [], [], DEADLINE_S)[0], found
            found += os.read(self.ours, 4096)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def screen(up: Run) -> Iterator[Callable[..., Screen]]:
    assert up("ls")[0] == 0
    made: list[Screen] = []

    def make(*command: str) -> Screen:
        made.append(Screen(*command))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_shell_is_raw_has_the_size_and_puts_the_terminal_back(
    screen: Callable[..., Screen],
) -> None:
    found = screen("sh", "-c", "echo $FAKE_TTY; read line; echo got $line; exit 5")
    found.read_until(b"1 24x80")
    assert not termios.tcgetattr(found.theirs)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
    os.write(found.ours, b"abc\n")
    found.read_until(b"got abc")
    assert found.process.wait(DEADLINE_S) == 5
    assert termios.tcgetattr(found.theirs) == found.before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_shell_that_is_ended_puts_the_terminal_back(
    screen: Callable[..., Screen], number: signal.Signals
) -> None:
    found = screen("sh", "-c", "echo ready; read line")
    found.read_until(b"ready")
    found.process.send_signal(number)
    assert found.process.wait(DEADLINE_S) == 128 + number
    assert termios.tcgetattr(found.theirs) == found.before


def test_three_escapes_leave_a_guest_that_hangs(screen: Callable[..., Screen]) -> None:
    found = screen("sh", "-c", "trap '' HUP TERM; echo ready; sleep 1000")
    found.read_until(b"ready")
    os.write(found.ours, b"\x1d\x1d")
    os.write(found.ours, b"\x1d")
    assert found.process.wait(DEADLINE_S) == 128 + signal.SIGHUP
    assert termios.tcgetattr(found.theirs) == found.before


def test_help_of_each_command_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["up"], ["run"], ["shell"], ["ls"], ["log"], ["start"], ["down"]):
        with pytest.raises(SystemExit) as ended:
            main(["vm", *words, "--help"])
        assert ended.value.code == 0
        assert "examples:\n  nupa vm" in capsys.readouterr().out
