# SPDX-License-Identifier: BSD-3-Clause
"""Boot files of guests: from a full cache without apt, and messages if something is missing."""

import errno
import lzma
import platform
import stat
from pathlib import Path

import pytest

from nupa.fabric import FabricError, LocalError
from nupa.vm.boot import boot, initramfs, packages
from tests.unit.vm.modules import module_bytes

RELEASE = "6.12.107+deb13-amd64"
VERSION = "QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1)\nCopyright"


def put(path: Path, content: str | bytes = "", executable: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if executable:
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH: apt is not there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Path) -> Path:
    """A cache with QEMU and a kernel that has one module, on a machine without apt."""
    assert not list(programs.iterdir())
    path = tmp_path / "cache"
    monkeypatch.setenv("NUPA_VM_CACHE", str(path))
    monkeypatch.setattr(boot, "_GUEST", tmp_path / "nupa-guest")
    monkeypatch.setattr(initramfs, "BOOT", ("9p",))
    monkeypatch.setattr(initramfs, "LATER", ())
    put(tmp_path / "nupa-guest", b"program")
    put(path / "qemu.1/version", VERSION)
    put(path / "qemu.1/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    put(path / "qemu.1/usr/bin/qemu-system-x86_64")
    put(path / f"linux.1/boot/vmlinuz-{RELEASE}")
    modules = path / "linux.1/usr/lib/modules" / RELEASE / "kernel"
    put(modules / "9p.ko.xz", lzma.compress(module_bytes("depends=")))
    return path


def test_a_full_cache_is_all_that_is_needed(cache: Path) -> None:
    files = boot.prepare(None, pytest.fail)
    assert files.qemu_version == (11, 1, 3)
    assert files.kernel == cache / f"linux.1/boot/vmlinuz-{RELEASE}"
    assert files.release == RELEASE
    assert b"nupa/9p.ko" in files.initramfs.read_bytes()
    libraries = f"{cache}/qemu.1/usr/lib/x86_64-linux-gnu"
    assert files.qemu[:4] == (
        f"{libraries}/ld-linux-x86-64.so.2",
        "--library-path",
        libraries,
        f"{cache}/qemu.1/usr/bin/qemu-system-x86_64",
    )
    assert files.qemu[4::2] == ("-L", "-L")
    assert boot.prepare(None, pytest.fail) == files


def test_a_kernel_of_ones_own_is_booted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = cache.with_name("own")
    monkeypatch.setenv(boot.KERNEL_VARIABLE, str(own))
    with pytest.raises(LocalError, match=r"boot/vmlinuz-\* is missing"):
        boot.prepare(None, pytest.fail)
    put(own / "boot/vmlinuz-6.12.0-kasan")
    with pytest.raises(LocalError, match=r"lib/modules/6\.12\.0-kasan is missing"):
        boot.prepare(None, pytest.fail)
    put(own / "lib/modules/6.12.0-kasan/kernel/9p.ko", module_bytes("depends="))
    files = boot.prepare(None, pytest.fail)
    assert files.kernel == own / "boot/vmlinuz-6.12.0-kasan"
    assert files.release == "6.12.0-kasan"
    assert b"nupa/9p.ko" in files.initramfs.read_bytes()


def test_more_modules_make_another_initramfs(cache: Path) -> None:
    modules = cache / "linux.1/usr/lib/modules" / RELEASE / "kernel"
    put(modules / "nvmet-rdma.ko.xz", lzma.compress(module_bytes("depends=")))
    usual = boot.prepare(None, pytest.fail).initramfs
    more = boot.prepare(None, pytest.fail, ["nvmet_rdma"]).initramfs
    assert b"nupa/nvmet_rdma.ko" not in usual.read_bytes()
    assert b"later nvmet_rdma\n" in more.read_bytes()
    with pytest.raises(LocalError, match="has no module absent"):
        boot.prepare(None, pytest.fail, ["absent"])


def test_another_program_makes_another_initramfs(cache: Path, tmp_path: Path) -> None:
    first = boot.prepare(None, pytest.fail).initramfs
    put(tmp_path / "nupa-guest", b"built again")
    second = boot.prepare(None, pytest.fail).initramfs
    assert second != first
    assert b"built again" in second.read_bytes()
    for number in range(6):
        put(tmp_path / "nupa-guest", b"build %d" % number)
        boot.prepare(None, pytest.fail)
    assert 1 < len(list(cache.glob("initramfs-*"))) < 6


def test_an_own_qemu_is_taken_at_its_word(cache: Path, tmp_path: Path) -> None:
    own = tmp_path / "own-qemu"
    put(own, "#!/bin/sh\necho QEMU emulator version 7.2.22 of Debian", executable=True)
    files = boot.prepare(own, pytest.fail)
    assert files.qemu == (str(own),)
    assert files.qemu_version == (7, 2, 22)
    assert files.kernel.parent.parent.parent == cache


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo something else", "no version of QEMU"),
        ("echo broken library >&2; exit 1", "broken library"),
    ],
)
def test_a_program_that_is_no_qemu_is_refused(
    cache: Path, tmp_path: Path, script: str, said: str
) -> None:
    assert cache.exists()
    own = tmp_path / "own-qemu"
    put(own, f"#!/bin/sh\n{script}", executable=True)
    with pytest.raises(LocalError, match=said):
        boot.prepare(own, pytest.fail)
    with pytest.raises(LocalError, match="give --qemu the path"):
        boot.prepare(tmp_path / "absent", pytest.fail)


@pytest.mark.parametrize(
    "missing",
    ["qemu.1/version", "qemu.1/usr/bin/qemu-system-x86_64", f"linux.1/boot/vmlinuz-{RELEASE}"],
)
def test_a_damaged_cache_says_which_folder_to_remove(cache: Path, missing: str) -> None:
    (cache / missing).unlink()
    folder = cache / missing.partition("/")[0]
    with pytest.raises(FabricError, match="remove that folder") as caught:
        boot.prepare(None, pytest.fail)
    assert str(folder) in str(caught.value)


def test_a_machine_without_apt_is_told_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Path
) -> None:
    assert not list(programs.iterdir())
    monkeypatch.setenv("NUPA_VM_CACHE", str(tmp_path / "cache"))
    with pytest.raises(LocalError, match="apt and dpkg missing"):
        boot.prepare(None, pytest.fail)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_without_apt_qemu_in_the_path_is_used_and_that_is_said(cache: Path, programs: Path) -> None:
    (cache / "qemu.1").rename(cache / "gone")
    qemu = programs / "qemu-system-x86_64"
    put(qemu, "#!/bin/sh\necho QEMU emulator version 7.2.22", executable=True)
    lines: list[str] = []
    files = boot.prepare(None, lines.append)
    assert files.qemu == (str(qemu),)
    assert len(lines) == 1
    assert lines[0].startswith("QEMU 7.2.22 in PATH is used")
    assert "missing" in lines[0]


def test_what_does_not_run_here_is_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, programs: Path
) -> None:
    """The fetched QEMU is started once before it becomes an entry of the cache."""
    assert not list(programs.iterdir())
    (cache / "qemu.1").rename(cache / "gone")

    class Apt:
        def __init__(self, *_: object) -> None: ...

        def update(self) -> None: ...

        def closure(self, _what: str, _package: str, target: Path) -> None:
            loader = target / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
            put(loader, "#!/bin/sh\necho cannot run >&2; exit 1", executable=True)

    monkeypatch.setattr(packages, "check_programs", lambda: None)
    monkeypatch.setattr(packages, "find_mirror", lambda: "http://mirror.example/debian")
    monkeypatch.setattr(packages, "Apt", Apt)
    with pytest.raises(LocalError, match="cannot run"):
        boot.prepare(None, pytest.fail)
    assert not (cache / "qemu.1").exists()


def test_a_package_without_our_program_says_build(cache: Path, tmp_path: Path) -> None:
    assert cache.exists()
    (tmp_path / "nupa-guest").unlink()
    with pytest.raises(LocalError, match="make build"):
        boot.prepare(None, pytest.fail)


def test_another_kind_of_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(LocalError, match="aarch64") as caught:
        boot.prepare(None, pytest.fail)
    assert caught.value.errno == errno.ENOTSUP


def test_the_kernel_is_told_who_it_is() -> None:
    words = boot.kernel_arguments("host1", "cxl", 268435456).split()
    assert words[-3:] == ["nupa.host=host1", "nupa.kind=cxl", "nupa.bytes=268435456"]
    assert "console=ttyS0" in words
