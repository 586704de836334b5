# SPDX-License-Identifier: BSD-3-Clause
"""Processes that seem to run under another kernel.  A kernel is known by its boot id.  Theirs is
another one, in a mount namespace of their own (as root; else in a user namespace, too)."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.cross.peers.node import WAIT_S
from tests.cross.peers.peer import Nursery

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_ENTER = f'mount --bind "$0" {_BOOT_ID} && exec "$@"'


def other_kernel(folder: Path) -> list[str]:
    """Returns the beginning of a command line: what follows runs under a kernel of its own.

    Skips the test where mount namespaces are not permitted.
    """
    boot_id = folder / str(uuid.uuid4())
    boot_id.write_text(f"{boot_id.name}\n")
    unshare = ["unshare", "--mount"] + (["--map-root-user"] if os.geteuid() else [])
    prefix = [*unshare, "sh", "-c", _ENTER, str(boot_id)]
    try:
        seen = subprocess.run(
            [*prefix, "cat", _BOOT_ID], check=True, capture_output=True, text=True, timeout=WAIT_S
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no mount namespace of our own here: {error}")
    assert seen.stdout == f"{boot_id.name}\n"
    return prefix


class Kernels:
    """Nurseries, each under a kernel of its own, by number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nurseries: list[Nursery] = []

    def __getitem__(self, number: int) -> Nursery:
        while len(self._nurseries) <= number:
            self._nurseries.append(Nursery(prefix=other_kernel(self._folder)))
        return self._nurseries[number]

    def close(self) -> None:
        for nursery in self._nurseries:
            nursery.close()
