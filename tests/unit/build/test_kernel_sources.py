# SPDX-License-Identifier: BSD-3-Clause
"""Files of the engine that kernel modules are built of (csrc/kernel/shared.list), as they are.

A file of the list may call functions of libc only that the kernel's host has: those that
csrc/kernel/libc/libc.h declares, and what every kernel has itself.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[3] / "csrc"
KERNEL = CSRC / "kernel"
SHARED = (KERNEL / "shared.list").read_text().split()
#: Functions that kernels have, with libc's meaning.
OWN = {"memchr", "memcmp", "memcpy", "memset", "snprintf", "strchr", "strcmp", "strlen"}
OWN |= {"strncmp", "vsnprintf"}
INCLUDE = re.compile(r"^#include <([^>]+)>$", re.MULTILINE)
DECLARED = re.compile(r"^[a-z][\w ]*[ *](\w+)\(", re.MULTILINE)
_BUILT = CSRC.parent / "build" / "dev"


def declared() -> set[str]:
    """Returns the functions that the kernel's libc.h declares."""
    return set(DECLARED.findall((KERNEL / "libc" / "libc.h").read_text()))


def object_of(source: str) -> Path | None:
    """Returns the object file of a source in build/dev; None: it is not built."""
    library = "netdev" if source.startswith("netdev/") else "engine*"
    return next(_BUILT.glob(f"CMakeFiles/nupa_{library}.dir/**/{source}.o"), None)


def called(built: Path) -> set[str]:
    """Returns the symbols of an object file that are not its own, without the engine's."""
    lines = subprocess.run(
        ["nm", "--undefined-only", "--format=just-symbols", built],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return {each.partition("@")[0] for each in lines if not each.startswith(("nupa_", "cm_", "_"))}


def test_the_list_is_sorted_and_each_file_exists() -> None:
    assert sorted(set(SHARED)) == SHARED
    assert [each for each in SHARED if not (CSRC / each).is_file()] == []


@pytest.mark.parametrize("source", SHARED)
def test_a_shared_file_includes_only_headers_that_the_kernel_has(source: str) -> None:
    included = set(INCLUDE.findall((CSRC / source).read_text()))
    headers = {str(each.relative_to(KERNEL / "libc")) for each in (KERNEL / "libc").rglob("*.h")}
    uapi = {each for each in included if each.startswith("linux/")}
    assert included - headers - uapi == set()


@pytest.mark.parametrize("source", SHARED)
def test_a_shared_file_calls_nothing_that_the_kernel_lacks(source: str) -> None:
    built = object_of(source)
    if built is None:
        pytest.skip(f"{source} is not built in build/dev")
    assert called(built) - declared() - OWN == set()


def test_a_file_that_is_not_shared_calls_what_the_kernel_lacks() -> None:
    built = object_of("engine/attachment/port.c")
    assert built is None or called(built) - declared() - OWN
