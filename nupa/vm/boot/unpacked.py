# SPDX-License-Identifier: BSD-3-Clause
"""Programs of Debian, unpacked beside the files that guests boot from, with all their libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nupa.vm.boot import cache, packages


def unpacked(
    entry: str,
    names: Sequence[str],
    progress: Callable[[str], None],
    suites: Sequence[str] = (packages.STABLE, packages.BACKPORTS),
) -> Path:
    """Returns the folder where the packages *names* lie, with those that they need.

    They are downloaded if the cache has no *entry*, whose name changes with *names* and *suites*.
    LocalError: apt is missing; FabricError: nothing can be downloaded.
    """
    store = cache.Cache(cache.folder(), progress)

    def make(path: Path) -> None:
        packages.check_programs()
        with store.scratch() as scratch:
            apt = packages.Apt(scratch, packages.find_mirror(), progress, suites)
            apt.update()
            apt.closure(" and ".join(names), names, path)

    return store.entry(entry, make)
