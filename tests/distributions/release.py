# SPDX-License-Identifier: BSD-3-Clause
"""Releases of Debian, unpacked beside each other: their programs run here, with their own libc.

apt fetches the packages with a state of its own, as for `nupa vm`.  A program is run by the loader
of its release, which finds our libraries first and those of the release after them.  So a release
needs no root and no namespace.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nupa.programs.unpacked import Unpacked
from nupa.vm.boot.cache import Cache
from nupa.vm.boot.packages import Apt, check_programs, find_mirror

ROOT = Path(__file__).parents[2]
SUITES = {
    "bookworm": "Debian 12",
    "trixie": "Debian 13",
    "testing": "Debian testing",
    "unstable": "Debian unstable",
}
PACKAGES = (
    "ibverbs-utils",
    "perftest",
    "rdmacm-utils",
    "infiniband-diags",
    "iproute2",
    "python3-pyverbs",
    "ibverbs-providers",
    "libibverbs-dev",
    "librdmacm-dev",
)
#: The versions that matter to a reader.
TOLD = ("ibverbs-utils", "perftest", "iproute2", "libc6", "python3")

_VERSIONS = "versions.json"


@dataclass(frozen=True)
class Release(Unpacked):
    """One suite: its unpacked packages at *root*, with the version of each."""

    suite: str
    versions: dict[str, str]

    @property
    def name(self) -> str:
        return SUITES[self.suite]


def fetch(suite: str, progress: Callable[[str], None]) -> Release:
    """Returns the present state of *suite*; packages that have changed are downloaded.

    LocalError, FabricError: no apt, no mirror (NUPA_VM_MIRROR names one), no network.
    """
    check_programs()
    store = Cache(_folder(), progress)
    with store.scratch() as state:
        apt = Apt(state, find_mirror(), progress, [suite])
        apt.update()
        versions = apt.versions(PACKAGES)

        def make(path: Path) -> None:
            apt.closure(SUITES[suite], PACKAGES, path)
            (path / _VERSIONS).write_text(json.dumps(versions))

        root = store.entry(f"{suite}-{_digest(versions)}", make)
    return Release(root, suite, versions)


def _folder() -> Path:
    path = ROOT / "build" / "distributions"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _digest(versions: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(versions, sort_keys=True).encode()).hexdigest()[:16]


def table(releases: Sequence[Release]) -> str:
    """Returns the versions of TOLD in each release, as docs/verbs.md has them."""
    rows = [["release", *TOLD]]
    rows += [[release.name, *(release.versions[name] for name in TOLD)] for release in releases]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
