# SPDX-License-Identifier: BSD-3-Clause
"""`nupa top` on a terminal: however it ends, the terminal is as it was."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.programs.pair import NUPA
from nupa.topology.topology import star

DEADLINE_S = 50.0
# Private modes of xterm that textual sets: alternate screen, mouse, focus, pasting, keyboard.
_SET = re.compile(rb"\x1b\[\?(\d+)([hl])")
_USUAL = {b"7", b"25"}  # set in any terminal: lines wrap, the cursor is seen
_ALTERNATE_SCREEN = b"1049"


@pytest.fixture
def lab(folder: Path) -> Iterator[str]:
    Fabric.create("lab", star(2)).close()
    yield "lab"
    assert len(list(folder.iterdir())) == 1
    Fabric.remove("lab")


class Terminal:
    """A pseudo-terminal of 80×24 characters, and the program on it."""

    def __init__(self, *arguments: str) -> None:
        self._master, self._slave = os.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self._slave)
        self.output = b""
        self.process = subprocess.Popen(
            [*NUPA, "top", *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=os.environ | {"TERM": "xterm-256color"},
            start_new_session=True,
        )

    @property
    def modes(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def read_until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < end, self.output.decode(errors="replace")
            if select.select([self._master], [], [], 0.05)[0]:
                self.output += os.read(self._master, 65536)

    def has_drawn(self, text: bytes) -> None:
        self.read_until(lambda: text in self.output)

    def end(self) -> int:
        """Reads to the end of the program; returns its exit code."""
        self.read_until(lambda: self.process.poll() is not None)
        while select.select([self._master], [], [], 0)[0]:
            self.output += os.read(self._master, 65536)
        return self.process.returncode

    def changed(self) -> set[bytes]:
        """Returns the modes that are not as in any terminal."""
        last = {mode: way == b"h" for mode, way in _SET.findall(self.output)}
        assert _ALTERNATE_SCREEN in last  # it was drawn at all
        return {mode for mode, is_set in last.items() if is_set != (mode in _USUAL)}

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@pytest.fixture
def terminal(lab: str) -> Iterator[Terminal]:
    found = Terminal(lab, "--interval", "100ms")
    yield found
    found.close()


def test_control_c_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.has_drawn(b"host1")
    assert terminal.modes != terminal.before
    terminal.type(b"\x03")
    assert terminal.end() == 0
    assert terminal.modes == terminal.before
    assert terminal.changed() == set()


def test_q_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.has_drawn(b"host1")
    terminal.type(b"q")
    assert terminal.end() == 0
    assert terminal.modes == terminal.before
    assert terminal.changed() == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(terminal: Terminal, number: signal.Signals) -> None:
    terminal.has_drawn(b"host1")
    terminal.process.send_signal(number)
    assert terminal.end() == 128 + number
    assert terminal.modes == terminal.before
    assert terminal.changed() == set()


def test_a_fabric_that_goes_is_told_and_the_next_is_shown(terminal: Terminal) -> None:
    terminal.has_drawn(b"host1")
    Fabric.remove("lab")
    terminal.has_drawn(b"no fabric is")
    Fabric.create("lab", star(3)).close()
    terminal.has_drawn(b"host2")
    terminal.type(b"q")
    assert terminal.end() == 0


@pytest.mark.usefixtures("lab")
def test_without_a_terminal_it_says_what_to_do() -> None:
    done = _top("lab")
    assert done.returncode == 1
    assert done.stderr == (
        "nupa: top draws on a terminal, and there is none: --once and --json print text\n"
    )


@pytest.mark.usefixtures("lab")
def test_without_textual_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("raise ImportError('none', name='textual')\n")
    program = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    done = subprocess.run(
        [sys.executable, "-c", program, *NUPA, "top", "lab"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 1
    said = "nupa: top needs textual, which is not installed: `pip install nupa[top]`"
    assert done.stdout.strip() == said


@pytest.mark.usefixtures("lab")
def test_once_prints_tables() -> None:
    done = _top("lab", "--once", "--interval", "10ms")
    assert done.returncode == 0, done.stderr
    head, hosts, links, *_ = done.stdout.split("\n\n")
    assert head.startswith("lab: 2 hosts  0B/s")
    assert [line.split()[0] for line in hosts.splitlines()] == ["Hosts", "HOST", "host0", "host1"]
    assert "host0/1" in links


@pytest.mark.usefixtures("lab")
def test_json_has_the_shape_of_the_documentation() -> None:
    done = _top("lab", "--once", "--json", "--interval", "10ms")
    found = json.loads(done.stdout)
    assert found["version"] == 1
    assert found["rates"]["hosts"]["host0"]["xmit_bytes"] == 0
    assert found["rates"]["seconds"] > 0


@pytest.mark.usefixtures("folder")
def test_a_missing_fabric_is_an_error() -> None:
    done = _top("none", "--once")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no fabric is named 'none'" in done.stderr


def _top(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NUPA, "top", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
