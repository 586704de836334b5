# SPDX-License-Identifier: BSD-3-Clause
"""Kernel modules (csrc/kernel), built for the guests' kernel without root.

The kernel's headers and a compiler are Debian packages in the cache, unpacked as a root folder of
their own.  make runs in it, in a user namespace.  What was built stays in the cache until a source
changes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nupa.base.errors import FabricError, LocalError
from nupa.vm.boot.cache import Cache
from nupa.vm.boot.packages import Apt

#: The modules, in the order in which they are loaded.
NAMES = ("nupa_core", "nupa_rdma", "nupa_net")
#: Modules of the kernel that use an RDMA device or give it to processes, and some to compare with.
USERS = (
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
    "nvme_rdma",
    "nvme_tcp",
    "nvmet_rdma",
    "nvmet_tcp",
    "brd",
    "rpcrdma",
    "nfsd",
    "nfsv4",
    "ib_iser",
    "ib_isert",
    "ib_srp",
    "ib_srpt",
    "sd_mod",
    "crc32c_generic",
    "smc_diag",
    "9pnet_rdma",
    "rds_rdma",
)

_SOURCES = Path(__file__).parents[3] / "csrc"
#: The folders of csrc that the modules are built of, or include.
FOLDERS = ("abi", "base", "engine", "kernel", "netdev", "packet", "region", "segment", "wire")
_FORMAT = 1
# Essential packages are dependencies of none.
_TOOLS = ("base-files", "bash", "coreutils", "dash", "findutils", "grep", "make", "mawk", "sed")
_WORK = "nupa-modules"
_TIMEOUT_S = 600.0
# $1: the root folder; $2: the sources; $3: the kernel's headers, in the root.
_SCRIPT = f"""
set -e
mount --bind "$2" "$1/{_WORK}"
mount --rbind /dev "$1/dev"
mount -t tmpfs none "$1/tmp"
exec chroot "$1" /usr/bin/make -s -j"$4" -C "$3" M=/{_WORK} modules
"""
_UNSHARE = ("unshare", "--map-root-user", "--mount", "sh", "-c", _SCRIPT, "sh")


def build(
    store: Cache,
    apt: Callable[[], Apt],
    release: str,
    progress: Callable[[str], None],
    tree: Path | None = None,
) -> dict[str, bytes]:
    """Returns the modules for the kernel *release*, by name.

    *tree*: where that kernel was built, if it is one's own: make runs there, with the compiler of
    this machine.  If it is missing, the kernel is Debian's.

    LocalError: the sources are missing, or user namespaces are not permitted; FabricError: the
    headers cannot be downloaded, or the compiler refuses the sources.
    """
    sources = dict(_read_sources())
    own = tree if tree and tree.is_dir() else None
    key = _key(f"{release} {_identity(own)}" if own else release, sources)
    root = own or store.entry(f"headers-{release}", lambda path: _fetch(apt(), release, path))

    def make(path: Path) -> None:
        started_s = time.monotonic()
        with store.scratch() as folder:
            _write(sources, folder)
            if own:
                _make_in(own, folder)
            else:
                _make(root, folder, release)
            path.mkdir()
            for name in NAMES:
                shutil.copy(folder / f"{name}.ko", path / f"{name}.ko")
        progress(f"modules: built in {time.monotonic() - started_s:.1f} s")

    entry = store.entry(f"modules-{key}", make)
    store.keep_newest("modules-*")
    store.keep_newest("headers-*", 2)
    return {name: (entry / f"{name}.ko").read_bytes() for name in NAMES}


def _read_sources() -> Iterator[tuple[str, bytes]]:
    if not (_SOURCES / "kernel" / "Kbuild").is_file():
        raise LocalError(
            f"{_SOURCES / 'kernel'} is missing: kernel modules are built from NUPA's sources, so "
            f"run `nupa` of a checkout",
            errno.ENOENT,
        )
    for folder in FOLDERS:
        for path in sorted((_SOURCES / folder).rglob("*")):
            if path.suffix in {".c", ".h", ".list"} or path.name == "Kbuild":
                yield str(path.relative_to(_SOURCES)), path.read_bytes()


def _key(release: str, sources: dict[str, bytes]) -> str:
    """Returns a text that changes with anything that the modules are made of."""
    digest = hashlib.sha256(repr((_FORMAT, release)).encode())
    for name, data in sources.items():
        digest.update(repr((name, len(data))).encode() + data)
    return digest.hexdigest()[:16]


def _identity(tree: Path) -> str:
    """Returns a text that changes with the configuration of a kernel, and what modules see of
    it."""
    files = (tree / ".config", tree / "Module.symvers")
    return "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.exists())


def _fetch(apt: Apt, release: str, path: Path) -> None:
    """Downloads the kernel's headers, and unpacks them with a compiler at *path*."""
    headers = f"linux-headers-{release}"
    try:
        common = apt.dependency(headers, r"linux-headers-[-+.~\w]+-common")
        kbuild = apt.dependency(headers, r"linux-kbuild-[-+.~\w]+")
        compiler = apt.dependency(headers, r"gcc-\d+(-for-host|-x86-64-linux-gnu)?")
    except FabricError as error:
        raise FabricError(
            f"no headers of the cached kernel {release}: remove the folder linux.* of the cache, "
            f"so that the kernel is downloaded again.  {error}",
            error.errno,
        ) from error
    apt.closure("compiler", [*_TOOLS, compiler, kbuild], path)
    apt.single("kernel's headers", headers, path)
    apt.single("headers of all flavours", common, path)
    # What installing the packages would do.
    awk = path / "usr/bin/awk"
    if not awk.is_symlink():
        awk.symlink_to("mawk")
    (path / _WORK).mkdir()


def _write(sources: dict[str, bytes], folder: Path) -> None:
    for name, data in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    shutil.copy(folder / "kernel" / "Kbuild", folder / "Kbuild")


def _make(root: Path, folder: Path, release: str) -> None:
    headers = f"/usr/src/linux-headers-{release}"
    _run_make([*_UNSHARE, str(root), str(folder), headers, str(os.cpu_count() or 1)])


def _make_in(tree: Path, folder: Path) -> None:
    jobs = str(os.cpu_count() or 1)
    _run_make(["make", "-s", "-j", jobs, "-C", str(tree), f"M={folder}", "modules"])


def _run_make(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            argv,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        package = {"unshare": "util-linux"}.get(argv[0], argv[0])
        raise LocalError(f"{argv[0]} not found: apt-get install {package}", errno.ENOENT) from None
    except subprocess.TimeoutExpired:
        raise FabricError(
            f"the modules were not built in {_TIMEOUT_S:.0f} s", errno.ETIMEDOUT
        ) from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        if any(line.startswith("unshare:") for line in said):
            raise LocalError(
                f"modules are built in a user namespace, and none is permitted here: {said[0]}; "
                f"`nupa doctor` says what to do",
                errno.EPERM,
            )
        errors = [line for line in said if "error" in line.lower()] or said
        raise FabricError(f"the modules cannot be built: {'; '.join(errors[:5])}", errno.EIO)
