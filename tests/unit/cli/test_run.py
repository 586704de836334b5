# SPDX-License-Identifier: BSD-3-Clause
"""`nupa run` as a process: environment, exit codes, signals, hosts, and what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nupa
from nupa.fabric import Fabric, registry
from nupa.topology.topology import star
from tests.unit.cli.launcher.install import PYTHON, install

NUPA: tuple[str, ...] = PYTHON
DEADLINE_S = 30


pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(autouse=True, params=["launcher", "python"])
def command(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Takes the command of csrc/launcher, and Python's own."""
    chosen = PYTHON if request.param == "python" else (install(tmp_path / "bin"),)
    monkeypatch.setattr(sys.modules[__name__], "NUPA", chosen)


def run(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NUPA, "run", *argv], capture_output=True, text=True, timeout=DEADLINE_S, **options
    )


class Program:
    """`nupa run` of a shell that says one line and then waits for its stdin to end."""

    def __init__(self, *argv: str, script: str = "echo $NUPA_HOST; read line") -> None:
        self.process = subprocess.Popen(
            [*NUPA, "run", *argv, "--", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    def end(self) -> int:
        """Ends its stdin; its exit code."""
        self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode

    def kill(self, number: int) -> int:
        self.process.send_signal(number)
        self.process.wait(DEADLINE_S)  # an end of stdin now would be a race with the signal
        return self.end()


def test_the_program_is_told_fabric_host_and_mover(folder: Path) -> None:
    script = 'echo "$NUPA_FABRIC $NUPA_HOST $NUPA_MOVER $LD_LIBRARY_PATH"'
    done = run("--mover", "relay", "--", "sh", "-c", script, env={**os.environ, "PATH": "/bin"})
    fabric, host, mover, libraries = done.stdout.split()
    assert (fabric, host, mover) == (f"{folder}/nupa-{os.geteuid()}-default", "host0", "relay")
    assert libraries.split(":")[0] == str(Path(nupa.__path__[0]).resolve() / "lib")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mover_of_the_environment_does_not_reach_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUPA_MOVER", "cma")
    assert run("--", "sh", "-c", 'echo "<$NUPA_MOVER>"').stdout == "<>\n"


def test_library_paths_keep_what_was_there_and_gain_no_empty_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/one::/two:")
    parts = run("--", "sh", "-c", "echo $LD_LIBRARY_PATH").stdout.strip().split(":")
    assert parts[1:] == ["/one", "/two"]
    assert all(parts)


def test_options_behind_the_command_are_the_commands() -> None:
    assert run("--", "echo", "--host", "x", "--", "y").stdout == "--host x -- y\n"
    assert run("printf", "%s", "--host").stdout == "--host"


@pytest.mark.parametrize("code", [0, 1, 2, 42, 255])
def test_the_exit_code_is_the_programs(code: int) -> None:
    assert run("--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "INT", "PIPE", "USR1"])
def test_it_dies_by_the_signal_that_ended_the_program(name: str) -> None:
    done = run("--", "sh", "-c", f"kill -{name} $$")
    assert done.returncode == -signal.Signals[f"SIG{name}"]


def test_a_program_that_is_not_there_is_127_and_one_that_cannot_run_126(tmp_path: Path) -> None:
    done = run("--", "no-such-program")
    assert done.returncode == 127
    assert done.stderr == "nupa: cannot run no-such-program: No such file or directory\n"
    plain = tmp_path / "plain"
    plain.touch()
    done = run("--", str(plain))
    assert done.returncode == 126
    assert done.stderr == f"nupa: cannot run {plain}: Permission denied\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_forwarded(number: signal.Signals) -> None:
    script = f"trap 'exit 33' {number.name[3:]}; echo ready; while :; do read line || :; done"
    program = Program(script=script)
    assert program.said == "ready"
    program.process.send_signal(number)
    assert program.process.wait(DEADLINE_S) == 33
    program.end()


def test_a_signal_that_ends_the_program_ends_both() -> None:
    assert Program().kill(signal.SIGTERM) == -signal.SIGTERM


def standard_signals(status: str) -> dict[str, int]:
    """Returns the masks of /proc/PID/status (proc(5)), without the real-time signals."""
    fields = dict(line.split(":") for line in status.splitlines())
    return {key: int(fields[key], 16) & 0x7FFFFFFF for key in ("SigBlk", "SigIgn", "SigCgt")}


def test_the_program_has_the_signals_of_any_program() -> None:
    status = ["grep", "^Sig", "/proc/self/status"]
    plain = subprocess.run(status, capture_output=True, text=True, check=True)
    assert standard_signals(run("--", *status).stdout) == standard_signals(plain.stdout)


def test_programs_get_hosts_in_turn_before_they_attach() -> None:
    programs = [Program() for _ in range(3)]
    assert [program.said for program in programs] == ["host0", "host1", "host0"]
    assert programs[1].end() == 1
    assert Program("--host", "1").kill(signal.SIGKILL) == -signal.SIGKILL
    again = Program()
    assert again.said == "host1"
    for program in (programs[0], programs[2], again):
        program.end()


def test_programs_that_start_at_once_get_different_hosts() -> None:
    Fabric.create("default", star(4)).close()
    processes = [
        subprocess.Popen(
            [*NUPA, "run", "--", "sh", "-c", "echo $NUPA_HOST; read line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    said = {process.stdout.readline().strip() for process in processes if process.stdout}
    assert said == {"host0", "host1", "host2", "host3"}
    for process in processes:
        process.communicate(timeout=DEADLINE_S)
    Fabric.remove("default")


def test_a_fabric_made_for_a_program_goes_with_the_last_one() -> None:
    first, second = Program(), Program()
    assert registry.names() == ["default"]
    first.end()
    assert registry.names() == ["default"]
    second.end()
    assert registry.names() == []


def test_a_fabric_that_was_up_stays() -> None:
    Fabric.create("lab", star(2)).close()
    assert run("--", "sh", "-c", "echo $NUPA_FABRIC").stdout.endswith("-lab\n")
    assert registry.names() == ["lab"]
    Fabric.remove("lab")


def test_what_a_killed_run_left_is_taken_away_by_the_next_command() -> None:
    program = Program()
    program.process.kill()
    program.end()
    assert registry.names() == ["default"]
    assert run("--", "true").returncode == 0
    assert registry.names() == []


def test_the_program_inherits_no_file_of_ours() -> None:
    done = run("--", sys.executable, "-c", "import os; print(*os.listdir('/proc/self/fd'))")
    assert set(done.stdout.split()) <= {"0", "1", "2", "3"}


def test_a_start_imports_nothing_that_takes_long() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nupa.cli", "run", "--", "true"],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "nupa.topology.topology" in loaded
    slow = {"cffi", "ctypes", "dataclasses", "json", "pathlib", "shutil", "subprocess", "tomllib"}
    assert not loaded & slow
