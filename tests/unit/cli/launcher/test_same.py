# SPDX-License-Identifier: BSD-3-Clause
"""The launcher and Python: the same environment, fabric, host and end.

tests/unit/cli/test_run.py runs all its tests over both.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nupa.fabric import Fabric, registry
from nupa.topology.topology import star
from tests.unit.cli.launcher.install import PYTHON, install

DEADLINE_S = 30
SHOW = (
    "import json, os, signal, sys; print(json.dumps([sys.argv[1:], list(os.environ.items()), "
    "os.getcwd(), sorted(signal.pthread_sigmask(0, [])), sorted(os.listdir('/proc/self/fd'))]))"
)

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def launcher(tmp_path: Path) -> tuple[str]:
    return (install(tmp_path / "bin", "exit 77"),)


def seen(command: Sequence[str], words: Sequence[str], env: dict[str, str]) -> object:
    """Returns what a program sees."""
    done = subprocess.run(
        [*command, "run", *words, sys.executable, "-c", SHOW, "a b", "", "--", "--host", "é"],
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


LISTS = ("", ":", "/a", "/a:/b", ":/a::/b:", "/a:/a")
LIBRARIES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "TSAN_OPTIONS", "ASAN_OPTIONS")


def random_environment(rng: random.Random) -> dict[str, str]:
    """Returns ours with variables that `nupa run` sets, drops or reads, in any order."""
    package = Path(__file__).parents[4] / "nupa"
    shim, verbs = str(package / "lib" / "libnupa_shim.so"), str(package / "lib" / "libibverbs.so.1")
    lists = [*LISTS, shim, f"{verbs}:/a:{shim}", str(package / "lib")]
    choices = {
        **dict.fromkeys(LIBRARIES, lists),
        "LD_PRELOAD": ["", ":", shim, f"{verbs}:{shim}"],  # others would have to exist
        "NUPA_MOVER": ["cma", ""],
        "NUPA_LOOPBACK": ["host", "machine"],
        "NUPA_HOST": ["host7"],
        "NUPA_PRELOAD": ["0", "1", ""],
        "NUPA_QUIET": ["1", ""],
        "NUPA_BELL": ["", "/x"],
        "NUPA_FABRIC": ["", "lab"],
        "EMPTY": [""],
        "EQUALS": ["=a=b"],
    }
    env = [(key, rng.choice(values)) for key, values in choices.items() if rng.random() < 0.6]
    # PEP 538: in the locale C the interpreter changes LC_CTYPE for its children, too.
    env += [
        (key, value) for key, value in os.environ.items() if key not in choices and key[:2] != "LC"
    ]
    rng.shuffle(env)
    return {**dict(env), "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize("seed", range(24))
def test_programs_see_the_same(launcher: tuple[str], seed: int) -> None:
    rng = random.Random(seed)
    Fabric.create("lab", star(3)).close()
    env = random_environment(rng)
    words = rng.choice(
        [[], ["--"], ["--host", "2"], ["--host=host1", "--"], ["--fabric=lab", "--host", "1"]]
    )
    assert seen(launcher, words, env) == seen(PYTHON, words, env)
    Fabric.remove("lab")


@pytest.mark.parametrize("name", ["relative", "trailing/"])
def test_the_folder_may_be_named_in_any_way(
    launcher: tuple[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    env = {**os.environ, "NUPA_DIR": name, "LC_ALL": "C.UTF-8"}
    assert seen(launcher, [], env) == seen(PYTHON, [], env)
    assert not list(Path(name).iterdir())


def test_a_word_without_a_name_is_no_variable(launcher: tuple[str], tmp_path: Path) -> None:
    """exec(3) passes any words; a shell cannot."""
    program = tmp_path / "exec.py"
    program.write_text(
        "import ctypes, sys\n"
        "words = [word.encode() for word in sys.argv[1:]]\n"
        "env = [b'A=1', b'word', b'A=2', b'LC_ALL=C.UTF-8', *words[:2]]\n"
        "argv = [*words[2:], b'run', b'--', b'/usr/bin/env']\n"
        "array = lambda items: (ctypes.c_char_p * (len(items) + 1))(*items)\n"
        "ctypes.CDLL(None).execve(argv[0], array(argv), array(env))\n"
    )
    found = [
        subprocess.run(
            [
                *(sys.executable, str(program)),
                *(f"NUPA_DIR={os.environ['NUPA_DIR']}", f"PATH={os.environ['PATH']}", *command),
            ],
            capture_output=True,
            timeout=DEADLINE_S,
        ).stdout
        for command in (launcher, PYTHON)
    ]
    assert found[0] == found[1]
    assert found[0].startswith(b"A=1\nLC_ALL")


def held(command: Sequence[str]) -> subprocess.Popen[str]:
    """Starts a program that runs until its stdin ends; its automatic fabric is up."""
    process = subprocess.Popen(
        [*command, "run", "sh", "-c", "echo; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "\n"
    return process


def test_the_automatic_fabric_is_the_same(launcher: tuple[str]) -> None:
    """Compares the control part, without what differs between any two fabrics."""
    contents = []
    for command in (launcher, PYTHON):
        process = held(command)
        with Fabric.open("default") as fabric:
            with Path(fabric.path).open("rb") as file:
                control = bytearray(file.read(64 << 10))
            segment = fabric._segment
            for number in (segment.generation, segment.created_ns):
                at = control.index(number.to_bytes(8, sys.byteorder))
                control[at : at + 8] = bytes(8)
            ports = fabric.ports
            described = (fabric.hosts, ports, [segment.route(0, 1), segment.route(1, 0)])
            contents.append((described, fabric.auto, Path(fabric.path).stat().st_size, control))
        process.communicate(timeout=DEADLINE_S)
    (described, *rest), (others, *other_rest) = contents
    assert described == others
    assert rest[:2] == other_rest[:2]
    checksums = sum(a != b for a, b in zip(rest[2], other_rest[2], strict=True))
    assert checksums <= 8  # the checksum covers the generation
    assert registry.names() == []


BESIDE = (".fm", ".admission", ".w0", ".w12g", ".w123", ".wires", ".w1234", ".w", ".x", ".trunk")


def test_the_same_files_go_with_the_automatic_fabric(
    launcher: tuple[str], folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "stays").touch()
    left = []
    for command in (launcher, PYTHON):
        process = held(command)
        path = Path(registry.path_of("default"))
        for suffix in BESIDE:
            path.with_name(f".{path.name}{suffix}").touch()
        path.with_name(f".{path.name}x.fm").touch()
        shown = path.with_name(f".{path.name}.files")
        (shown / "host0" / "sys").mkdir(parents=True)
        (shown / "host0" / "sys" / "file").touch()
        (shown / "link").symlink_to(elsewhere)
        process.communicate(timeout=DEADLINE_S)
        left.append(sorted(entry.name for entry in folder.iterdir()))
        for entry in folder.iterdir():
            entry.unlink()
    assert left[0] == left[1]
    assert len(left[0]) == 5  # w1234, w, x, trunk, and another fabric's
    assert (elsewhere / "stays").exists()


def test_a_fabric_that_another_program_uses_stays(launcher: tuple[str]) -> None:
    for first, second in ((launcher, PYTHON), (PYTHON, launcher), (launcher, launcher)):
        holder = held(first)
        held(second).communicate(timeout=DEADLINE_S)
        assert registry.names() == ["default"]
        holder.communicate(timeout=DEADLINE_S)
        assert registry.names() == []


def test_a_file_whose_maker_died_is_replaced(launcher: tuple[str]) -> None:
    path = Path(registry.path_of("default"))
    path.touch(0o600)
    held(launcher).communicate(timeout=DEADLINE_S)
    assert not path.exists()


def test_a_lock_that_is_held_is_waited_for(launcher: tuple[str]) -> None:
    with registry.control_lock():
        process = subprocess.Popen([*launcher, "run", "true"])
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
    assert process.wait(DEADLINE_S) == 0


def test_python_waits_for_a_lock_that_is_held_for_long(launcher: tuple[str]) -> None:
    with registry.control_lock():
        assert subprocess.run([*launcher, "run", "true"], timeout=DEADLINE_S).returncode == 77
    assert registry.names() == []
