# SPDX-License-Identifier: BSD-3-Clause
"""The initramfs of a guest: NUPA's /init and the kernel's modules, as a cpio archive in memory.

The archive is not compressed: QEMU copies it fast, and an emulated processor would need seconds
to decompress it.  Formats: cpio "newc" (the kernel's documentation, early-userspace/
buffer-format.rst); .modinfo of modules, NUL-terminated strings KEY=VALUE.
"""

from __future__ import annotations

import errno
import lzma
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from nupa.base.errors import LocalError

# Paths that csrc/guest/init.h has, too.
_FORMAT = 1
_INIT = "init"
_FOLDER = "nupa"
_LIST = "nupa/modules"
_PROGRAM = "nupa/guest"

#: Modules that a guest loads at its start.
BOOT = (
    "9pnet_virtio",
    "9p",
    "overlay",
    "cxl_acpi",
    "cxl_pci",
    "cxl_mem",
    "dax_cxl",
    "device_dax",
    "virtio_net",
)
#: Modules that are loaded when the kernel or a user asks.
LATER = (
    "tun",
    "veth",
    "rdma_rxe",
    "crc32_pclmul",
    "rdma_ucm",
    "ib_uverbs",
    "ib_umad",
    "vfio_pci",
    "vfio_iommu_type1",
    "uio_pci_generic",
    "sch_netem",
    "sch_ingress",
    "cls_matchall",
    "act_mirred",
    "ifb",
    "bridge",
    "wireguard",
    "xfrm_user",
    "esp4",
    "gcm",  # and what its use in ESP needs
    "seqiv",
    "ghash_generic",
)
#: Names by which the kernel asks for some of them.
_ALIASES = {
    "char-major-10-200": "tun",
    "devname:net/tun": "tun",
    "rtnl-link-veth": "veth",
    "rtnl-link-tun": "tun",
    "rdma-link-rxe": "rdma_rxe",
    "crypto-crc32": "crc32_pclmul",
    "net-sch-netem": "sch_netem",
    "net-sch-ingress": "sch_ingress",
    "net-cls-matchall": "cls_matchall",
    "net-act-mirred": "act_mirred",
    "rtnl-link-ifb": "ifb",
    "rtnl-link-bridge": "bridge",
    "rtnl-link-wireguard": "wireguard",
    "net-pf-16-proto-6": "xfrm_user",
    "xfrm-type-2-50": "esp4",
    "crypto-rfc4106(gcm(aes))": "gcm",
    "crypto-gcm": "gcm",
    "crypto-seqiv": "seqiv",
    "crypto-ghash": "ghash_generic",
}

_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")


class Module(NamedTuple):
    """A kernel module: its name with underscores, its direct dependencies, its bytes."""

    name: str
    needs: tuple[str, ...]
    data: bytes


def modinfo(data: bytes) -> dict[str, str]:
    """Returns the section .modinfo of an ELF file.  LocalError: it is not one, or is damaged."""
    try:
        for name, section in _sections(data):
            if name == b".modinfo":
                pairs = (each.partition(b"=") for each in section.split(b"\0") if each)
                return {key.decode(): value.decode() for key, _, value in pairs}
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise LocalError(f"not a kernel module, or a damaged one: {error}", errno.ENOEXEC) from None
    raise LocalError("not a kernel module: it has no section .modinfo", errno.ENOEXEC)


def _sections(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    header = _ELF_HEADER.unpack_from(data)
    if not header[0].startswith(b"\x7fELF\x02\x01"):
        raise LocalError("not a kernel module: not a 64-bit little-endian ELF file", errno.ENOEXEC)
    table, size, count, names = header[6], header[11], header[12], header[13]
    sections = [_SECTION.unpack_from(data, table + i * size) for i in range(count)]
    strings = sections[names][4]
    for section in sections:
        start = strings + section[0]
        offset, length = section[4], section[5]
        yield data[start : data.index(b"\0", start)], data[offset : offset + length]


def _name(path: Path) -> str:
    return path.name.partition(".")[0].replace("-", "_")


def _read_module(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix != ".xz":
        return data
    try:
        return lzma.decompress(data)
    except lzma.LZMAError as error:
        raise LocalError(f"{path} is damaged: {error}", errno.EIO) from error


def _module(name: str, data: bytes) -> Module:
    needs = (each.replace("-", "_") for each in modinfo(data).get("depends", "").split(","))
    return Module(name, tuple(each for each in needs if each), data)


def read_modules(tree: Path, wanted: Iterable[str]) -> dict[str, Module]:
    """Returns modules below *tree* and all that they need, by name, without built-in ones.

    LocalError: one is missing (ENOENT).
    """
    files = {_name(path): path for path in tree.rglob("*.ko*")}
    builtin = set()
    for path in tree.rglob("modules.builtin"):
        builtin = {_name(Path(line)) for line in path.read_text().splitlines()}
    found: dict[str, Module] = {}
    waiting = list(wanted)
    while waiting:
        name = waiting.pop().replace("-", "_")
        if name in found or name in builtin:
            continue
        if name not in files:
            raise LocalError(
                f"the kernel has no module {name} below {tree}: another kernel package is needed",
                errno.ENOENT,
            )
        data = _read_module(files[name])
        found[name] = _module(name, data)
        waiting += found[name].needs
    return found


def load_order(modules: Mapping[str, Module], name: str) -> list[str]:
    """Returns the modules to load before *name*, in order.

    LocalError: modules need each other (ELOOP).
    """
    order: list[str] = []

    def visit(each: str, above: tuple[str, ...]) -> None:
        if each in above:
            raise LocalError(f"modules need each other: {' -> '.join((*above, each))}", errno.ELOOP)
        for need in modules[each].needs if each in modules else ():
            visit(need, (*above, each))
        if each in modules and each not in order:
            order.append(each)

    visit(name, ())
    return [each for each in order if each != name]


def module_list(modules: Mapping[str, Module], boot: Iterable[str], later: Iterable[str]) -> str:
    """Returns the list that csrc/guest/init_modules.c parses."""
    lines = [f"alias {alias} {name}" for alias, name in _ALIASES.items() if name in modules]
    for when, names in (("boot", boot), ("later", later)):
        for name in names:
            if name in modules:
                lines.append(" ".join((when, name, *load_order(modules, name))))
    return "".join(f"{line}\n" for line in lines)


def cpio(files: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Packs (path without leading slash, mode as in stat(2), content) in the format "newc"."""
    archive = bytearray()
    for number, (path, mode, data) in enumerate([*files, ("TRAILER!!!", 0, b"")], 1):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        archive += bytes(-len(archive) % 4) + data
        archive += bytes(-len(archive) % 4)
    return bytes(archive)


def content_id(more: Sequence[str] = ()) -> str:
    """Returns a text that changes when build() makes another archive of the same input."""
    return repr((_FORMAT, BOOT, (*LATER, *more), _ALIASES))


def build(
    program: bytes,
    tree: Path,
    more: Sequence[str] = (),
    own: Mapping[str, bytes] = MappingProxyType({}),
) -> bytes:
    """Makes the initramfs of *program*, from csrc/guest, and *tree*, the kernel's modules.

    *more*: modules that are loaded when a user asks, beside LATER.  *own*: modules that are not the
    kernel's, by name; likewise.
    """
    later = [*dict.fromkeys((*LATER, *more))]
    added = {name: _module(name, data) for name, data in own.items()}
    needed = [need for module in added.values() for need in module.needs if need not in added]
    modules = {**read_modules(tree, (*BOOT, *later, *needed)), **added}
    later += added
    folder, file = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644
    files = [
        ("dev", folder, b""),
        (_FOLDER, folder, b""),
        (_PROGRAM, file | 0o111, program),
        (_INIT, stat.S_IFLNK | 0o777, _PROGRAM.encode()),
        (_LIST, file, module_list(modules, BOOT, later).encode()),
    ]
    files += [(f"{_FOLDER}/{each.name}.ko", file, each.data) for each in modules.values()]
    return cpio(files)
