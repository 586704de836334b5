# SPDX-License-Identifier: BSD-3-Clause
"""Kernel modules for guests: what they are built of, when they are built again, messages."""

from __future__ import annotations

import errno
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from nupa.fabric import FabricError, LocalError
from nupa.vm.boot import initramfs
from nupa.vm.boot.cache import Cache
from nupa.vm.boot.packages import Apt
from nupa.vm.modules import build
from tests.unit.vm.modules import module_bytes
from tests.unit.vm.test_initramfs import unpack

RELEASE = "6.12.107+deb13-amd64"


def no_apt() -> Apt:
    raise AssertionError("nothing is to be downloaded")


@pytest.fixture
def store(tmp_path: Path) -> Cache:
    """A cache that has the headers."""
    (tmp_path / f"headers-{RELEASE}").mkdir()
    return Cache(tmp_path, lambda _line: None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders in which make would have run."""
    folders: list[Path] = []

    def make(_root: Path, folder: Path, _release: str) -> None:
        folders.append(folder)
        assert (folder / "Kbuild").read_bytes() == (folder / "kernel/Kbuild").read_bytes()
        for name in build.NAMES:
            (folder / f"{name}.ko").write_bytes(name.encode())

    monkeypatch.setattr(build, "_make", make)
    return folders


def test_modules_are_built_once_until_a_source_changes(
    store: Cache, made: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build.build(store, no_apt, RELEASE, lambda _line: None)
    assert first == {name: name.encode() for name in build.NAMES}
    assert build.build(store, no_apt, RELEASE, lambda _line: None) == first
    assert len(made) == 1
    sources = tmp_path / "csrc"
    (sources / "kernel").mkdir(parents=True)
    (sources / "kernel" / "Kbuild").write_text("obj-m := other.o\n")
    monkeypatch.setattr(build, "_SOURCES", sources)
    build.build(store, no_apt, RELEASE, lambda _line: None)
    assert len(made) == 2


def test_modules_for_a_kernel_of_ones_own_are_made_in_its_tree(
    store: Cache, made: list[Path], tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    assert build.build(store, no_apt, RELEASE, lambda _line: None, tree)
    assert len(made) == 1  # there is none: Debian's headers
    tree.mkdir()
    rule = "modules:\n\ttest -f $(M)/Kbuild\n"
    rule += "".join(f"\tcat .config >$(M)/{name}.ko\n" for name in build.NAMES)
    (tree / "Makefile").write_text(rule)
    for config in (b"CONFIG_KASAN=y\n", b"CONFIG_KCSAN=y\n"):
        (tree / ".config").write_bytes(config)
        got = build.build(store, no_apt, RELEASE, lambda _line: None, tree)
        assert got == dict.fromkeys(build.NAMES, config)
    assert len(made) == 1


def test_each_shared_file_is_among_the_sources() -> None:
    names = {name for name, _ in build._read_sources()}
    listed = (build._SOURCES / "kernel" / "shared.list").read_text().split()
    assert set(listed) <= names
    assert "kernel/Kbuild" in names


def test_each_source_is_in_the_unit_of_its_folder(tmp_path: Path) -> None:
    sources = dict(build._read_sources())
    build._write(sources, tmp_path)
    units = "$(patsubst %.o,./%.c,$(nupa_core-y) $(nupa_rdma-y) $(nupa_net-y))"
    (tmp_path / "Makefile").write_text(f"src := .\nobj := .\ninclude Kbuild\nunits: {units}\n")
    subprocess.run(["make", "-s", "-C", tmp_path, "units"], check=True)
    included: Counter[str] = Counter()
    for path in tmp_path.glob("unit-*.c"):
        for name in re.findall(r'^#include "(.+)"$', path.read_text(), re.MULTILINE):
            assert path.stem == "unit-" + str(Path(name).parent).replace("/", "-")
            included[name] += 1
    own = [name for name in sources if name.startswith("kernel/") and name.endswith(".c")]
    listed = sources["kernel/shared.list"].decode().split()
    assert included == Counter([*own, *listed])


def test_without_sources_a_checkout_is_asked_for(
    store: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_SOURCES", tmp_path / "none")
    with pytest.raises(LocalError, match="run `nupa` of a checkout") as caught:
        build.build(store, no_apt, RELEASE, lambda _line: None)
    assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("echo 'unshare: unshare failed: no' >&2; exit 1", LocalError, "`nupa doctor` says"),
        ("echo 'x.c:1: error: bad' >&2; exit 2", FabricError, "x.c:1: error: bad"),
    ],
)
def test_a_failed_build_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, error: type, said: str
) -> None:
    monkeypatch.setattr(build, "_UNSHARE", ("sh", "-c", script))
    with pytest.raises(error, match=said):
        build._make(tmp_path, tmp_path, RELEASE)


def test_own_modules_are_in_the_list_behind_what_they_need(tmp_path: Path) -> None:
    tree = tmp_path / "modules"
    tree.mkdir()
    for name in (*initramfs.BOOT, *initramfs.LATER, "ib_core"):
        (tree / f"{name}.ko").write_bytes(module_bytes("depends="))
    own = {
        "nupa_core": module_bytes("depends="),
        "nupa_rdma": module_bytes("depends=nupa_core,ib_core"),
    }
    entries = unpack(initramfs.build(b"program", tree, own=own))
    lines = entries["nupa/modules"].data.decode().splitlines()
    assert "later nupa_rdma nupa_core ib_core" in lines
    assert entries["nupa/nupa_core.ko"].data == own["nupa_core"]
    assert "nupa/nupa_core.ko" not in unpack(initramfs.build(b"program", tree))
