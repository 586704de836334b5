# SPDX-License-Identifier: BSD-3-Clause
"""Programs that tests need and a machine may lack."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nupa.fabric import NupaError
from nupa.netdev import interface, keeper

#: Packages that .ci/setup unpacks, as they would start a server if they were installed.
UNPACKED = Path(__file__).parents[2] / "build" / "unpacked" / "usr"


def needs(program: str, package: str) -> str:
    """Returns the path of *program*; skips where it is missing, naming its Debian *package*."""
    path = [os.environ.get("PATH", ""), "/usr/sbin", f"{UNPACKED}/sbin", f"{UNPACKED}/bin"]
    found = shutil.which(program, path=":".join(path))
    if found is None:
        pytest.skip(f"there is no {program} here: Debian's package {package} has it")
    return found


def needs_interfaces() -> None:
    """Skips where no network interface can be made, and says what is missing."""
    try:
        interface.check_device()
        keeper.Keeper("/nowhere", 1).close()
    except NupaError as error:
        pytest.skip(str(error))
