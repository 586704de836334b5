# SPDX-License-Identifier: BSD-3-Clause
"""The initramfs of guests: the archive, read back as the kernel reads it, and its modules."""

import lzma
import stat
import struct
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.fabric import LocalError
from nupa.vm.boot import initramfs
from tests.unit.vm.modules import module_bytes


class Entry(NamedTuple):
    mode: int
    data: bytes


def unpack(archive: bytes) -> dict[str, Entry]:
    """Returns a newc archive, by the description in cpio(5): fields of eight hex digits."""
    entries = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size, check = fields[1], fields[6], fields[11], fields[12]
        assert check == 0
        name = archive[at + 110 : at + 110 + name_size]
        assert name.endswith(b"\0")
        start = (at + 110 + name_size + 3) // 4 * 4
        data = archive[start : start + size]
        assert len(data) == size
        at = (start + size + 3) // 4 * 4
        if name == b"TRAILER!!!\0":
            assert at == len(archive)
            return entries
        entries[name[:-1].decode()] = Entry(mode, data)


names = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-./", min_size=1, max_size=40)


@given(st.dictionaries(names, st.binary(max_size=200), max_size=8))
def test_an_archive_has_every_file_at_its_size(files: dict[str, bytes]) -> None:
    mode = stat.S_IFREG | 0o644
    found = unpack(initramfs.cpio((name, mode, data) for name, data in files.items()))
    assert found == {name: Entry(mode, data) for name, data in files.items()}


def test_what_a_module_says_of_itself_is_read() -> None:
    data = module_bytes("depends=netfs,9pnet", "name=9p", "license=GPL")
    assert initramfs.modinfo(data) == {"depends": "netfs,9pnet", "name": "9p", "license": "GPL"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no module at all" * 10,
        module_bytes("name=x")[:100],
        b"\x7fELF\x01\x01" + module_bytes("name=x")[6:],
        module_bytes("name=x", section=".other"),
    ],
)
def test_what_is_no_module_is_refused(data: bytes) -> None:
    with pytest.raises(LocalError, match="not a kernel module"):
        initramfs.modinfo(data)


@given(st.integers(0, 4096), st.binary(min_size=1, max_size=8))
def test_a_damaged_module_is_refused_or_read_but_never_crashes(at: int, noise: bytes) -> None:
    data = bytearray(module_bytes("depends=a", "name=x"))
    at %= len(data)
    data[at : at + len(noise)] = noise
    try:
        found = initramfs.modinfo(bytes(data))
    except LocalError:
        return
    assert isinstance(found, dict)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Modules: top needs middle and low-er, middle needs low-er; two are not wanted."""
    needs = {"top": "middle,low-er", "middle": "low_er", "low-er": "", "other": "", "loop": "loop"}
    for name, depends in needs.items():
        folder = tmp_path / "kernel" / name[0]
        folder.mkdir(parents=True, exist_ok=True)
        data = lzma.compress(module_bytes(f"depends={depends}"))
        (folder / f"{name}.ko.xz").write_bytes(data)
    (tmp_path / "kernel" / "plain.ko").write_bytes(module_bytes("depends=low_er"))
    (tmp_path / "modules.builtin").write_text("kernel/drivers/virtio/virtio-pci.ko\n")
    return tmp_path


def test_modules_come_with_all_that_they_need(tree: Path) -> None:
    found = initramfs.read_modules(tree, ["top", "plain", "virtio_pci"])
    assert set(found) == {"top", "middle", "low_er", "plain"}
    assert initramfs.modinfo(found["top"].data)["depends"] == "middle,low-er"


def test_what_a_module_needs_is_loaded_first(tree: Path) -> None:
    found = initramfs.read_modules(tree, ["top", "plain"])
    assert initramfs.load_order(found, "top") == ["low_er", "middle"]
    assert initramfs.load_order(found, "low_er") == []
    text = initramfs.module_list(found, ["top"], ["plain", "virtio_pci"])
    assert text == "boot top low_er middle\nlater plain low_er\n"


def test_an_alias_stands_before_what_it_means() -> None:
    module = initramfs.Module("tun", (), b"")
    lines = initramfs.module_list({"tun": module}, [], ["tun"]).splitlines()
    assert lines[-1] == "later tun"
    assert "alias char-major-10-200 tun" in lines[:-1]


def test_a_missing_module_is_named(tree: Path) -> None:
    with pytest.raises(LocalError, match="no module absent"):
        initramfs.read_modules(tree, ["top", "absent"])


def test_a_damaged_file_is_named(tree: Path) -> None:
    (tree / "kernel/t/top.ko.xz").write_bytes(b"no xz")
    with pytest.raises(LocalError, match=r"top\.ko\.xz is damaged"):
        initramfs.read_modules(tree, ["top"])


def test_modules_that_need_each_other_are_refused(tree: Path) -> None:
    found = initramfs.read_modules(tree, ["loop"])
    with pytest.raises(LocalError, match="loop -> loop"):
        initramfs.load_order(found, "loop")


def test_the_archive_has_the_program_the_list_and_the_modules(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = initramfs.content_id()
    monkeypatch.setattr(initramfs, "BOOT", ("top",))
    monkeypatch.setattr(initramfs, "LATER", ("plain",))
    assert initramfs.content_id() != before
    found = unpack(initramfs.build(b"program", tree))
    assert found["nupa/guest"] == Entry(stat.S_IFREG | 0o755, b"program")
    assert found["init"] == Entry(stat.S_IFLNK | 0o777, b"nupa/guest")
    assert found["nupa/modules"].data == b"boot top low_er middle\nlater plain low_er\n"
    modules = {name for name in found if name.endswith(".ko")}
    assert modules == {f"nupa/{name}.ko" for name in ("top", "middle", "low_er", "plain")}
    assert found["nupa/top.ko"].data.startswith(b"\x7fELF")
    # A file's folder stands before it.
    order = list(found)
    assert order.index("nupa") < order.index("nupa/guest")


def test_the_header_of_a_module_is_little_endian() -> None:
    (sections,) = struct.unpack_from("<H", module_bytes("name=x"), 60)
    assert sections == 3
