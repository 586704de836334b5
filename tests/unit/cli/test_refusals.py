# SPDX-License-Identifier: BSD-3-Clause
"""Mistakes of a user, full disks and Ctrl-C: one line, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.fabric import Fabric, registry
from nupa.topology.topology import star
from tests.unit.cli.command import Nupa

pytestmark = pytest.mark.usefixtures("up")
NUPA = [sys.executable, "-m", "nupa"]


@pytest.fixture
def up(folder: Path) -> Iterator[Path]:
    Fabric.create("default", star(2)).close()
    yield folder
    Fabric.remove("default")


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("pool alloc none x", 2, "'none' is not a size: write it as 4096, 64K, 512M or 1G"),
        ("fault clear 4294967296", 1, "default has no fault 4294967296: `nupa fault ls` lists"),
        ("fault clear 99999999999999999999", 1, "default has no fault 99999999999999999999"),
        ("fm serve --dcd 256M", 2, "argument --dcd: '256M' is not a multiple of 512MiB"),
        ("fm serve --dcd 512M", 2, "--dcd is memory of the devices of --mld: add one"),
        ("fm serve --sld 0", 2, "argument --sld: '0' is not a size from 256MiB to"),
        ("fm serve --sld 16777215T", 1, "cannot make a file of 0xffffff0000000000 bytes"),
    ],
)
def test_a_wrong_number_is_one_line(nupa: Nupa, line: str, code: int, message: str) -> None:
    assert message in nupa.fails(*line.split(), code=code)


@pytest.mark.parametrize("words", [("run", "--"), ("shell", "host0", "--"), ("run",)])
def test_an_empty_word_is_not_a_program(nupa: Nupa, words: tuple[str, ...]) -> None:
    line = nupa.fails(*words, "", code=2)
    assert "the command after -- is an empty word: name a program" in line


@pytest.mark.parametrize("command", ["show", "down", "up", "run"])
def test_a_folder_where_a_segment_should_be_is_said(nupa: Nupa, up: Path, command: str) -> None:
    place = Path(registry.path_of("lab"))
    assert place.parent == up
    place.mkdir()
    program = ["--", "true"] if command == "run" else []
    line = nupa.fails(command, "--fabric", "lab", *program)
    assert str(place) in line
    assert "regular file" in line
    place.rmdir()


@pytest.mark.parametrize("words", [["show"], ["show", "--json"], ["fabric", "registers", "hdm"]])
def test_a_full_disk_is_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [*NUPA, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (found.returncode, found.stderr) == (1, "nupa: stdout: No space left on device\n")


def test_closed_outputs_are_no_output() -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        script = f'"$0" -m nupa show {closed}; echo $?; "$0" -m nupa show x {closed}; echo $?'
        found = subprocess.run(
            ["sh", "-c", script, sys.executable], capture_output=True, text=True, check=False
        )
        assert "Traceback" not in found.stderr
        assert [line for line in found.stdout.splitlines() if line.isdecimal()] == ["0", "1"]


#: Runs a command, and sends SIGINT to itself at import number N of the command.
INTERRUPTED = """\
import os, signal, sys
from nupa.__main__ import main

class Interrupt:
    left = int(sys.argv.pop(1))
    def find_spec(self, *_):
        Interrupt.left -= 1
        if Interrupt.left == 0:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
code = main()
print("not interrupted" if Interrupt.left > 0 else "")
sys.exit(code)
"""


@pytest.mark.parametrize("words", [["run", "--", "true"], ["fm", "ls"]])
@pytest.mark.parametrize("number", [1, 5, 20, 80])
def test_an_interrupt_while_modules_are_imported_prints_nothing(
    words: list[str], number: int
) -> None:
    found = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(number), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if "not interrupted" not in found.stdout:
        assert found.stderr == ""
        assert found.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert os.listdir(registry.folder()) == [f"nupa-{os.geteuid()}-default"]  # noqa: PTH208
