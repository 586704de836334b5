# SPDX-License-Identifier: BSD-3-Clause
"""Debian packages, downloaded by apt with a state of its own and unpacked, but not installed.

apt resolves dependencies as if nothing were installed, so all libraries of a program are included,
and checks Debian's signatures.  It needs no root, and leaves the machine's packages unchanged.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from nupa.base.errors import FabricError, LocalError

ARCHITECTURE = "amd64"
#: The suites: stable has kernel 6.12, backports has QEMU 11.
STABLE = "trixie"
BACKPORTS = "trixie-backports"
MIRROR_VARIABLE = "NUPA_VM_MIRROR"

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PROGRAMS = {"apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg"}
_TARGET = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(LABEL)"
_TIMEOUT_S = 1800.0
_MEGABYTE = 1e6
_URI_LINE = re.compile(r"^'(?P<uri>[^']+)' (?P<file>\S+) (?P<bytes>\d+)", re.MULTILINE)
_FILE = re.compile(r"(?P<package>[^_]+)_(?P<version>[^_]+)_\w+\.deb")


class Download(NamedTuple):
    """The size of a download: number of packages, bytes."""

    packages: int
    bytes: int


def check_programs() -> None:
    """Raises LocalError if a program or Debian's key is missing; says which and what to do."""
    missing = {package for name, package in _PROGRAMS.items() if shutil.which(name) is None}
    if missing:
        raise LocalError(
            f"{' and '.join(sorted(missing))} missing: QEMU and the guests' kernel are downloaded "
            f"as Debian packages, so run this on Debian or Ubuntu, or in a container of them",
            errno.ENOENT,
        )
    if not _KEYRING.exists():
        raise LocalError(
            f"{_KEYRING} missing, which verifies packages: apt-get install debian-archive-keyring",
            errno.ENOENT,
        )


def parse_mirror(targets: str) -> str | None:
    """Returns the mirror of Debian's main archive from lines of _TARGET.

    It is the first with the label Debian, else the first whose lists were never downloaded and
    whose address looks like one.
    """
    likely = None
    for line in targets.splitlines():
        uri, _, words = line.strip().partition(" ")
        release, component, label = [*words.split(" ", 2), "", "", ""][:3]
        if label == "Debian":
            return uri
        unknown = not label or label.startswith("$(")
        named = urlsplit(uri).path.rstrip("/").endswith("/debian") and "security" not in release
        if unknown and named and component == "main" and likely is None:
            likely = uri
    return likely


def find_mirror() -> str:
    """Returns $NUPA_VM_MIRROR, else the mirror of the machine's apt.  LocalError: none."""
    named = os.environ.get(MIRROR_VARIABLE)
    if named:
        return named
    targets = _run(["apt-get", "indextargets", "--format", _TARGET], None)
    mirror = parse_mirror(targets)
    if mirror is None:
        raise LocalError(
            f"this machine's apt has no mirror of Debian: set {MIRROR_VARIABLE} to the address "
            f"of one, as in sources.list (it ends with /debian)",
            errno.ENOENT,
        )
    return mirror


def sources(mirror: str, suites: Sequence[str]) -> str:
    """Returns a sources.list, for lists of packages only: apt-file and others would add targets.

    LocalError: *mirror* is not an address.
    """
    if not re.fullmatch(r"[a-z+]+:[!-~]+", mirror) or "[" in mirror:
        raise LocalError(f"{mirror!r} is not the address of a mirror", errno.EINVAL)
    return "".join(
        f"deb [signed-by={_KEYRING} target=Packages] {mirror} {suite} main\n" for suite in suites
    )


def configuration(folder: Path, release: str) -> str:
    """Returns an apt.conf with all state in *folder*, which prefers packages of *release*.

    The machine's proxies stay in force.
    """
    if '"' in str(folder):
        raise LocalError(
            f"{folder} has a quotation mark in its name: apt cannot use it", errno.EINVAL
        )
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "state" / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::Log": folder,
        "APT::Architecture": ARCHITECTURE,
        "APT::Default-Release": release,
        "APT::Install-Recommends": "false",
        "APT::Get::List-Cleanup": "false",
        # Downloads belong to the user who runs this; root's folder is closed to apt's own user.
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    # Hooks and foreign architectures of the machine do not apply.
    cleared = ("APT::Architectures", "APT::Update", "DPkg::Pre-Install-Pkgs", "DPkg::Post-Invoke")
    lines = [f"#clear {name};" for name in cleared]
    lines += [f'{name} "{value}";' for name, value in settings.items()]
    return "".join(f"{line}\n" for line in lines)


def _run(argv: Sequence[str], cwd: Path | None) -> str:
    """Returns a program's output.  FabricError: it failed; the message quotes it."""
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise LocalError(f"{argv[0]} not found", errno.ENOENT) from None
    except subprocess.TimeoutExpired:
        raise FabricError(f"{argv[0]} did not end in {_TIMEOUT_S:.0f} s", errno.ETIMEDOUT) from None
    if done.returncode:
        said = "; ".join(line for line in done.stderr.splitlines() if line.strip()) or "nothing"
        raise FabricError(f"{' '.join(argv[:1])} failed and said: {said[-1000:]}", errno.EIO)
    return done.stdout


class Apt:
    """apt with its state in a folder; *progress* gets a line for each step.

    Packages are those of the last of *suites*, or else of those before it.
    """

    def __init__(
        self,
        folder: Path,
        mirror: str,
        progress: Callable[[str], None],
        suites: Sequence[str] = (STABLE, BACKPORTS),
    ) -> None:
        self._folder = folder
        self._suites = suites
        self._mirror = mirror
        self._progress = progress
        for each in ("state/lists/partial", "cache/archives/partial"):
            (folder / each).mkdir(parents=True, exist_ok=True)
        (folder / "state" / "status").touch()
        (folder / "sources.list").write_text(sources(mirror, suites))
        (folder / "apt.conf").write_text(configuration(folder, suites[-1]))

    def _apt(self, program: str, *words: str, cwd: Path | None = None) -> str:
        return _run([program, "-c", str(self._folder / "apt.conf"), *words], cwd)

    def update(self) -> None:
        """Downloads the lists of packages.  FabricError: no network, or a mirror without them."""
        started_s = time.monotonic()
        try:
            self._apt("apt-get", "update", "--error-on=any")
        except FabricError as error:
            raise FabricError(
                f"no lists of packages for {' and '.join(self._suites)} from {self._mirror}: is "
                f"there a network, and has the mirror these suites?  {MIRROR_VARIABLE} names "
                f"another.  {error}",
                error.errno,
            ) from error
        self._progress(f"lists of packages: {time.monotonic() - started_s:.1f} s")

    def dependency(self, package: str, pattern: str) -> str:
        """Returns the first dependency of *package* in the stable suite whose name matches.

        FabricError: there is none.
        """
        shown = self._apt("apt-cache", "show", f"{package}/{STABLE}")
        for line in shown.splitlines():
            if line.startswith("Depends:"):
                for each in re.split(r"[,|]", line.removeprefix("Depends:")):
                    name = each.split("(")[0].strip()
                    if re.fullmatch(pattern, name):
                        return name
        raise FabricError(f"{package} of {STABLE} names no package {pattern}", errno.ENOENT)

    def versions(self, packages: Sequence[str]) -> dict[str, str]:
        """Returns the versions that closure() would unpack: of *packages* and their
        dependencies."""
        text = self._apt("apt-get", *_install(packages), "--print-uris")
        files = [unquote(match["file"]) for match in _URI_LINE.finditer(text)]
        return {
            match["package"]: match["version"] for file in files if (match := _FILE.match(file))
        }

    def closure(self, what: str, packages: Sequence[str], target: Path) -> None:
        """Downloads *packages* with their dependencies and unpacks them into *target*."""
        self._fetch(what, _install(packages), self._folder / "cache" / "archives", target)

    def single(self, what: str, package: str, target: Path) -> None:
        """Downloads *package* alone and unpacks it into *target*."""
        debs = self._folder / package
        debs.mkdir(exist_ok=True)
        self._fetch(what, ["download", f"{package}/{STABLE}"], debs, target)

    def _fetch(self, what: str, words: list[str], debs: Path, target: Path) -> None:
        size = parse_uris(self._apt("apt-get", *words, "--print-uris", cwd=debs))
        megabytes = size.bytes / _MEGABYTE
        packages = f"{size.packages} package{'s' if size.packages != 1 else ''}"
        self._progress(f"{what}: downloading {packages}, {megabytes:.0f} MB")
        started_s = time.monotonic()
        self._apt("apt-get", *words, cwd=debs)
        fetched_s = time.monotonic()
        unpack(sorted(debs.glob("*.deb")), target)
        unpacked_s = time.monotonic()
        self._progress(
            f"{what}: {megabytes:.0f} MB, downloaded in {fetched_s - started_s:.1f} s, "
            f"unpacked in {unpacked_s - fetched_s:.1f} s"
        )


def _install(packages: Sequence[str]) -> list[str]:
    return ["install", "--yes", "--download-only", *packages]


def parse_uris(text: str) -> Download:
    """Parses the output of apt-get --print-uris.  FabricError: it names no package."""
    sizes = [int(match["bytes"]) for match in _URI_LINE.finditer(text)]
    if not sizes:
        raise FabricError(
            "apt has nothing to download: is the package in the mirror?", errno.ENOENT
        )
    return Download(len(sizes), sum(sizes))


def unpack(debs: Sequence[Path], target: Path) -> None:
    """Unpacks packages over each other.  FabricError: one is damaged."""
    target.mkdir(parents=True, exist_ok=True)
    for deb in debs:
        _run(["dpkg-deb", "--extract", str(deb), str(target)], None)
