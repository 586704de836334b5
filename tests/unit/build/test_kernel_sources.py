# SPDX-License-Identifier: BSD-3-Clause
"""Files of the engine that kernel modules are built of (csrc/kernel/shared.list), as they are.

A file of the list may call functions of libc only that the kernel's host has: those that
csrc/kernel/libc/libc.h declares, and what every kernel has itself.  The files of a folder are
compiled as one unit there, so their names differ.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
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
#: Names of one file: static functions, variables, function pointers and what the kernel's macros
#: define; tags; macros with what they stand for.
STATIC = re.compile(
    r"^static\s+(?:[A-Z]+_\w+\((\w+)|[^;={(]*\(\*(\w+)|"
    r"[^;={(]*?\b(?!struct\b)(\w+)\s*(?:\[[^\]]*\]\s*)*[;=({])|"
    r"^\} (\w+)",  # of a struct without a tag
    re.MULTILINE,
)
TAG = re.compile(r"^(?:struct|union|enum) (\w+) \{", re.MULTILINE)
MACRO = re.compile(r"^#define (\w+)((?:.*\\\n)*.*)$", re.MULTILINE)
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


def names(text: str) -> Iterator[tuple[str, str | None]]:
    """Yields the names of a file that no other one of its unit may have; of macros, with what they
    stand for, which another may repeat."""
    for match in STATIC.finditer(text):
        yield next(filter(None, match.groups())), None
    for match in TAG.finditer(text):
        yield match[1], None
    for match in MACRO.finditer(text):
        yield match[1], re.sub(r"/\*.*?\*/|\s+", " ", match[2], flags=re.DOTALL).strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("static int count;\n", ("count", None)),
        ("static uint8_t *table[4] = { 0 };\n", ("table", None)),
        ("static const struct point origin = { 0 };\n", ("origin", None)),
        ("static void (*look)(void);\n", ("look", None)),
        ("static struct {\n\tint x;\n} one = { 0 };\n", ("one", None)),
        ("static DEFINE_SPINLOCK(lock);\n", ("lock", None)),
        ("static DECLARE_WORK(work, done);\n", ("work", None)),
        ("static inline bool is_one(int n,\n\t\t\t int m)\n{\n}\n", ("is_one", None)),
        ("struct point {\n\tint x;\n};\n", ("point", None)),
        ("#define MOST 4u /* of them */\n", ("MOST", "4u")),
    ],
)
def test_names_of_a_file_are_found(text: str, expected: tuple[str, str | None]) -> None:
    assert list(names(text)) == [expected]


def test_files_of_a_folder_have_no_name_in_common() -> None:
    own = {path.relative_to(CSRC) for path in KERNEL.rglob("*.c")}
    assert own
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in {*own, *map(Path, SHARED)}:
        for name, meaning in names((CSRC / path).read_text()):
            seen[str(path.parent), name].add(path.name if meaning is None else meaning)
    assert {at: found for at, found in seen.items() if len(found) > 1} == {}
