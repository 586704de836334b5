# SPDX-License-Identifier: BSD-3-Clause
"""A thousand command lines a run end with a documented code, and in words.

The seed is in the name of a failure's line; NUPA_FUZZ_SEED repeats it, NUPA_FUZZ_LINES sets how
many lines are tried.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom

import pytest

from nupa.cli import build_parser, commands, main
from nupa.cxl.fm.server.server import Server, path_of
from nupa.cxl.site.site import Site
from nupa.fabric import Fabric, registry
from nupa.topology.file import PRESET_FOLDER
from nupa.topology.topology import star
from tests.unit.child import failure_in_child
from tests.unit.cli.fuzz import PORTS, PROGRAMS, Lines, is_run

SEED = int(os.environ.get("NUPA_FUZZ_SEED") or SystemRandom().randrange(1 << 32))
COUNT = int(os.environ.get("NUPA_FUZZ_LINES") or 1000)
LINE_S = 20
STEP = 256 << 20
CAPTURE = Path(__file__).parents[2] / "data" / "rxe_any.pcap"
#: 0: done; 1: an error; 2: a wrong command line; 126, 127: a program that cannot be started.
CODES = {0, 1, 2, 126, 127}
#: Python's own words, which no message has.
PYTHON = re.compile(
    r"Traceback|<[\w.]+ object|<class|\w(?:Error|Exception)\b|NoneType|Namespace|\b[A-Z]\w+\(\w+="
)
#: Commands that say on stdout what failed.
SAID_ON_STDOUT = ("doctor", "replay", "run")


@pytest.fixture
def guarded(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place in which all that a command may touch is the test's own: fabrics, machines, files.

    A fabric manager serves a name of its own.  PATH has the programs of PROGRAMS and no other: the
    machine has programs by the names of words, as `ls` of a port's faults.
    """
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("true", "false"):
        (programs / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(programs))
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NUPA_VM_CACHE"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("NUPA_QUIET", "1")
    monkeypatch.setenv("SHELL", "/bin/true")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # NumPy's, for plots
    monkeypatch.chdir(home)
    shutil.copy(CAPTURE, home / "x.pcap")
    shutil.copy(PRESET_FOLDER / "pair.toml", home / "x.toml")
    site = Site(2, [STEP], [4 * STEP], dynamic_bytes=2 * STEP)
    with Server(site.manager, path_of("served")).start():
        yield home
    assert registry.folder() == str(folder)
    for name in registry.names():
        Fabric.remove(name, force=True)
    assert sorted(folder.iterdir()) == []


def too_long(_number: int, _frame: object) -> None:
    raise TimeoutError(f"no end after {LINE_S} s")


def restore(folder: Path) -> None:
    """Makes the two fabrics that a line may have taken down."""
    assert registry.folder() == str(folder)  # no line reaches a fabric of the user
    for name in {"default", "lab"} - {*registry.names()}:
        Fabric.create(name, star(2, pool_bytes=16 << 20)).close()


def run(line: list[str]) -> int:
    """Runs a line in this process, or only parses it; returns its exit code."""
    try:
        if not is_run(line):
            build_parser(line).parse_args(line)
            return 0
        return main(line)
    except SystemExit as end:
        return int(end.code or 0)


def check(line: list[str], code: int, err: str) -> None:
    """Raises AssertionError unless the end of a command is as documented."""
    where = f"NUPA_FUZZ_SEED={SEED}: nupa {shlex.join(line)}\n{err}"
    assert code in CODES, f"code {code}: {where}"
    assert not PYTHON.search(err), where
    if code and not {*line} & {*SAID_ON_STDOUT}:
        assert err.strip(), f"nothing is said: {where}"
    if code == 2:
        assert err.startswith("nupa: "), where


def run_lines(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Runs COUNT lines in this process, and checks the end of each."""
    lines = Lines(Random(SEED))
    codes = set()
    signal.signal(signal.SIGALRM, too_long)
    for number in range(COUNT):
        restore(folder)
        line = lines.next()
        sys.stdin = io.TextIOWrapper(io.BytesIO())
        signal.setitimer(signal.ITIMER_REAL, LINE_S)
        try:
            code = run(line)
        except BaseException as error:
            error.add_note(f"NUPA_FUZZ_SEED={SEED}, line {number}: nupa {shlex.join(line)}")
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        check(line, code, capfd.readouterr().err)
        codes.add(code)
    assert codes >= {0, 1, 2}


def test_no_command_line_ends_in_a_traceback(
    guarded: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # A child has one thread, as `nupa run` has.
    failure = failure_in_child(lambda: run_lines(folder, capfd))
    assert not failure, failure
    assert guarded.exists()


def test_the_command_itself_ends_in_the_same_ways(guarded: Path, folder: Path) -> None:
    lines = Lines(Random(SEED + 1))
    tried = 0
    restore(folder)
    while tried < 12:
        line = lines.next()
        if not is_run(line) or any("\x00" in word for word in line):
            continue
        tried += 1
        found = subprocess.run(
            [sys.executable, "-m", "nupa", *line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
        check(line, found.returncode, found.stderr.decode(errors="replace"))
    assert guarded.exists()


def test_the_lines_are_of_all_commands_and_name_no_file_elsewhere() -> None:
    lines = Lines(Random(7))
    made = [lines.next() for _ in range(3000)]
    assert {line[0] for line in made if line} >= {*commands()}
    assert sum(map(is_run, made)) > len(made) / 2
    known = {*PROGRAMS, *PORTS, "10MB/s"}
    for word in {word for line in made for word in line} - known:
        assert not word.startswith("/")
        assert ".." not in word
