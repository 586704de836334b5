# SPDX-License-Identifier: BSD-3-Clause
"""The files that guests boot from: QEMU, a kernel and an initramfs, downloaded once and cached.

QEMU runs from the cache, by the loader and libraries that came with it.  The initramfs is made
again whenever NUPA's program in it has changed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import nupa
from nupa.base.errors import FabricError, LocalError, NupaError
from nupa.vm.boot import cache, initramfs, packages
from nupa.vm.modules import build

Progress = Callable[[str], None]

#: A folder with a kernel of one's own: boot/vmlinuz-RELEASE, lib/modules/RELEASE.
KERNEL_VARIABLE = "NUPA_VM_KERNEL"

# Entries of the cache.  The number grows when their content changes.
_QEMU = "qemu.1"
_KERNEL = "linux.1"
_PROGRAM = "qemu-system-x86_64"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_GUEST = Path(nupa.__file__).parent / "bin" / "nupa-guest"
_VERSION = re.compile(r"version (\d+)\.(\d+)\.(\d+)")
_VERSION_TIMEOUT_S = 30.0

# These shorten the start; an emulated processor needs no mitigations.  The clock is the time stamp
# counter, which needs no call into QEMU.
_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 clocksource=tsc tsc=reliable random.trust_cpu=on "
    "nokaslr no_timer_check mitigations=off init_on_alloc=0 lsm= audit=0 "
    "initcall_blacklist=jent_mod_init"
)


class BootFiles(NamedTuple):
    """The files that a guest is started with."""

    qemu: tuple[str, ...]
    """The loader, if it has one, the program, and its folders of firmware."""
    qemu_version: tuple[int, int, int]
    kernel: Path
    initramfs: Path
    release: str
    """The kernel's release, as in uname(2)."""


def kernel_arguments(host: str, kind: str, size_bytes: int) -> str:
    """Returns the kernel's command line; csrc/guest/init.c parses the words nupa.*."""
    return f"{_ARGUMENTS} nupa.host={host} nupa.kind={kind} nupa.bytes={size_bytes}"


def prepare(
    qemu: str | Path | None,
    progress: Progress,
    modules: Sequence[str] = (),
    *,
    nupa_modules: bool = False,
) -> BootFiles:
    """Returns the files that guests boot from, and downloads those that are not cached.

    *qemu*: a program to use instead of the downloaded one.  If None, and none can be downloaded,
    one in PATH is used.  *modules*: more modules of the kernel that guests can load, beside those
    of initramfs.LATER.  *nupa_modules*: NUPA's own are built and put into the initramfs, with those
    that use them.  With a full cache, no network is needed.  *progress* gets lines meanwhile.

    LocalError: the machine is not x86-64 (ENOTSUP), apt is missing, or *qemu* is not QEMU;
    FabricError: nothing can be downloaded, or the cache is damaged.
    """
    if platform.machine() != "x86_64":
        raise LocalError(
            f"this machine is {platform.machine()}: guests need x86_64, as they run the machine's "
            f"own programs under an x86_64 kernel",
            errno.ENOTSUP,
        )
    store = cache.Cache(cache.folder(), progress)
    with ExitStack() as stack:
        apt = _OneApt(store, stack, progress)
        argv, version = _own_qemu(str(qemu)) if qemu else _find_qemu(store, apt, progress)
        kernel, release, tree = _find_kernel(store, apt)
        built = tree / "build" if os.environ.get(KERNEL_VARIABLE) else None
        own = build.build(store, apt, release, progress, built) if nupa_modules else {}
    image = _find_initramfs(store, release, tree, modules, own)
    return BootFiles(argv, version, kernel, image, release)


def parse_version(text: str) -> tuple[int, int, int]:
    """Parses the output of `qemu-system-x86_64 --version`.  LocalError: it has no version."""
    match = _VERSION.search(text)
    if match is None:
        raise LocalError(f"no version of QEMU in {text[:100]!r}", errno.EINVAL)
    major, minor, micro = (int(each) for each in match.groups())
    return major, minor, micro


def _ask_version(argv: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            [*argv, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalError(f"cannot run {argv[0]}: {error}", errno.ENOEXEC) from error
    if done.returncode:
        raise LocalError(
            f"{argv[0]} --version failed and said: {done.stderr.strip()[:500]}", errno.ENOEXEC
        )
    return done.stdout


def _own_qemu(name: str) -> tuple[tuple[str, ...], tuple[int, int, int]]:
    path = shutil.which(name)
    if path is None:
        raise LocalError(
            f"{name} is not a program: give --qemu the path of a {_PROGRAM}", errno.ENOENT
        )
    return (path,), parse_version(_ask_version((path,)))


def _fetched_qemu(root: Path) -> tuple[str, ...]:
    libraries = root / _LIBRARIES
    return (
        str(libraries / "ld-linux-x86-64.so.2"),
        "--library-path",
        str(libraries),
        str(root / "usr/bin" / _PROGRAM),
        "-L",
        str(root / "usr/share/qemu"),
        "-L",
        str(root / "usr/share/seabios"),
    )


class _OneApt:
    """Makes apt when it is first needed; its lists serve all downloads."""

    def __init__(self, store: cache.Cache, stack: ExitStack, progress: Progress) -> None:
        self._store = store
        self._stack = stack
        self._progress = progress
        self._apt: packages.Apt | None = None

    def __call__(self) -> packages.Apt:
        if self._apt is None:
            packages.check_programs()
            mirror = packages.find_mirror()
            folder = self._stack.enter_context(self._store.scratch())
            apt = packages.Apt(folder, mirror, self._progress)
            apt.update()
            self._apt = apt
        return self._apt


def _find_qemu(
    store: cache.Cache, apt: _OneApt, progress: Progress
) -> tuple[tuple[str, ...], tuple[int, int, int]]:
    def make(path: Path) -> None:
        apt().closure("QEMU", ["qemu-system-x86"], path)
        # It is kept only if it runs here.
        (path / "version").write_text(_ask_version(_fetched_qemu(path)))

    try:
        root = store.entry(_QEMU, make)
    except NupaError as error:
        if shutil.which(_PROGRAM) is None:
            raise
        argv, version = _own_qemu(_PROGRAM)
        progress(
            f"QEMU {'.'.join(map(str, version))} in PATH is used, because none can be downloaded: "
            f"{error}"
        )
        return argv, version
    argv = _fetched_qemu(root)
    for path in (argv[0], argv[3], str(root / "version")):
        if not Path(path).is_file():
            raise _damaged(root, path)
    return argv, parse_version((root / "version").read_text())


def _find_kernel(store: cache.Cache, apt: _OneApt) -> tuple[Path, str, Path]:
    """Returns the kernel, its release and its folder of modules."""

    def make(path: Path) -> None:
        package = apt().dependency("linux-image-amd64", r"linux-image-6\.12\.[-+.~\w]+")
        apt().single("kernel", package, path)
        _kernel_of(path)

    named = os.environ.get(KERNEL_VARIABLE)
    if named:
        return _kernel_of(Path(named), _not_a_kernel)
    return _kernel_of(store.entry(_KERNEL, make))


def _kernel_of(
    root: Path, refusal: Callable[[Path, str], NupaError] | None = None
) -> tuple[Path, str, Path]:
    refuse = refusal or _damaged
    images = sorted((root / "boot").glob("vmlinuz-*"))
    if not images:
        raise refuse(root, "boot/vmlinuz-*")
    release = images[-1].name.removeprefix("vmlinuz-")
    for modules in (root / "usr/lib/modules" / release, root / "lib/modules" / release):
        if modules.is_dir():
            return images[-1], release, modules
    raise refuse(root, f"lib/modules/{release}")


def _not_a_kernel(root: Path, missing: str) -> LocalError:
    return LocalError(
        f"{missing} is missing in {root}, the folder of {KERNEL_VARIABLE}: install a kernel there "
        f"(docs/kernel.md)",
        errno.ENOENT,
    )


def _damaged(root: Path, missing: str) -> FabricError:
    return FabricError(
        f"{missing} is missing in {root}: remove that folder, and it is downloaded again",
        errno.ENOENT,
    )


def _find_initramfs(
    store: cache.Cache,
    release: str,
    tree: Path,
    modules: Sequence[str],
    own: Mapping[str, bytes],
) -> Path:
    try:
        program = _GUEST.read_bytes()
    except FileNotFoundError:
        raise LocalError(
            f"{_GUEST}, the first program of guests, is missing: build NUPA again (`make build`)",
            errno.ENOENT,
        ) from None
    modules = (*modules, *(build.USERS if own else ()))
    key = hashlib.sha256(repr((release, initramfs.content_id(modules))).encode() + program)
    for data in own.values():
        key.update(data)

    def make(path: Path) -> None:
        path.write_bytes(initramfs.build(program, tree, modules, own))

    image = store.entry(f"initramfs-{key.hexdigest()[:16]}", make)
    store.keep_newest("initramfs-*")
    return image
