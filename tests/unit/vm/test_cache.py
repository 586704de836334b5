# SPDX-License-Identifier: BSD-3-Clause
"""The cache of what guests boot from: whole entries, one maker at a time, nothing half."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nupa.fabric import LocalError
from nupa.vm.boot.cache import Cache, folder

# Makes an entry and is killed in the middle of it.
_KILLED = """
import os, signal, sys
from pathlib import Path
from nupa.vm.boot.cache import Cache

def make(path):
    path.mkdir()
    (path / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)

Cache(Path(sys.argv[1]), print).entry("thing", make)
"""


def quiet(line: str) -> None:
    pytest.fail(f"no process had to wait, but it said: {line}")


def names(path: Path) -> set[str]:
    return {each.name for each in path.iterdir()} - {"lock"}


def make_file(path: Path) -> None:
    path.write_text("made")


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path, quiet)
    assert cache.entry("thing", make_file).read_text() == "made"
    again = cache.entry("thing", lambda path: pytest.fail(f"{path} was made again"))
    assert again == tmp_path / "thing"
    assert names(tmp_path) == {"thing"}


def test_what_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path, quiet)

    def fail(path: Path) -> None:
        path.mkdir()
        (path / "half").write_text("x")
        raise LocalError("no network", errno.ENETUNREACH)

    with pytest.raises(LocalError, match="no network"):
        cache.entry("thing", fail)
    assert names(tmp_path) == set()
    assert cache.entry("thing", make_file).read_text() == "made"


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], timeout=30, check=False)
    assert done.returncode < 0
    (left,) = names(tmp_path)
    assert (tmp_path / left / "thing" / "half").exists()
    assert Cache(tmp_path, quiet).entry("thing", make_file).read_text() == "made"
    assert names(tmp_path) == {"thing"}


def test_what_another_process_works_in_is_left_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path, quiet)
    other = Cache(tmp_path, quiet)
    with other.scratch() as folder:
        cache.entry("thing", make_file)
        assert folder.is_dir()
    assert names(tmp_path) == {"thing"}


def test_who_comes_second_waits_and_takes_what_the_first_made(tmp_path: Path) -> None:
    said = threading.Event()
    started = threading.Event()
    lines: list[str] = []
    found: list[Path] = []

    def progress(line: str) -> None:
        lines.append(line)
        said.set()

    def slow(path: Path) -> None:
        started.set()
        assert said.wait(20)  # until the second one waits
        make_file(path)

    second = threading.Thread(
        target=lambda: found.append(
            Cache(tmp_path, progress).entry(
                "thing", lambda path: path.write_text("second") and None
            )
        )
    )

    def first() -> None:
        found.append(Cache(tmp_path, quiet).entry("thing", slow))

    thread = threading.Thread(target=first)
    thread.start()
    assert started.wait(20)
    second.start()
    thread.join(20)
    second.join(20)
    assert [path.read_text() for path in found] == ["made", "made"]
    assert len(lines) == 1
    assert str(tmp_path) in lines[0]
    assert "another process" in lines[0]


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(6):
        path = tmp_path / f"image-{number}"
        path.write_text("x")
        os.utime(path, (number, number))
    (tmp_path / "other").write_text("x")
    Cache(tmp_path, quiet).keep_newest("image-*", 2)
    assert names(tmp_path) == {"image-4", "image-5", "other"}


def test_folders_are_entries_too(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"modules-{number}"
        path.mkdir()
        (path / "nupa_core.ko").write_text("x")
        os.utime(path, (number, number))
    Cache(tmp_path, quiet).keep_newest("modules-*", 2)
    assert {path.name for path in tmp_path.glob("modules-*")} == {"modules-1", "modules-2"}


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"NUPA_VM_CACHE": "own", "XDG_CACHE_HOME": "xdg"}, "own"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/nupa/vm"),
        ({}, "home/.cache/nupa/vm"),
    ],
)
def test_where_the_cache_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wanted: str
) -> None:
    for name in ("NUPA_VM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    assert folder() == tmp_path / wanted
    assert folder().is_dir()


def test_a_cache_that_cannot_be_made_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("NUPA_VM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(LocalError, match="set NUPA_VM_CACHE") as caught:
        folder()
    assert caught.value.errno == errno.ENOTDIR
