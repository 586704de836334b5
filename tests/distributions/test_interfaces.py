# SPDX-License-Identifier: BSD-3-Clause
"""The binary interface of each release: what its libraries export and its files import, headers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nupa.programs.unpacked import LIBRARIES
from tests.abi import test_helpers, test_layout, test_rdmacm, test_symbols
from tests.distributions.release import Release

pytestmark = pytest.mark.timeout(600)  # the first test of a release downloads it

KINDS: dict[str, Callable[..., set[Any]]] = {
    "libibverbs.so.1": test_symbols.dynamic_symbols,
    "librdmacm.so.1": test_rdmacm.symbols,
}
#: What imports them, below /usr.
CLIENTS = (
    "bin/*",
    "sbin/*",
    "lib/x86_64-linux-gnu/lib*.so.*",
    "lib/x86_64-linux-gnu/libibverbs/*.so",
    "lib/x86_64-linux-gnu/rsocket/*.so*",
    "lib/python3/dist-packages/pyverbs/**/*.so",
)


def test_its_helpers_answer_as_ours(release: Release) -> None:
    theirs = test_helpers.probe("libibverbs.so.1", release.python(ours=False))
    test_helpers.assert_same_answers(test_helpers.probe(str(LIBRARIES / "libibverbs.so.1")), theirs)


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def clients(release: Release) -> list[Path]:
    found = [path for pattern in CLIENTS for path in (release.root / "usr").glob(pattern)]
    return sorted(
        path for path in found if path.is_file() and not path.is_symlink() and is_elf(path)
    )


@pytest.mark.parametrize("library", KINDS)
def test_all_that_its_library_exports_is_exported(release: Release, library: str) -> None:
    theirs = KINDS[library](release.library(library), defined=True)
    assert len(theirs) > 60
    assert theirs - KINDS[library](LIBRARIES / library, defined=True) == set()


@pytest.mark.parametrize("library", KINDS)
def test_all_that_its_files_import_is_exported(release: Release, library: str) -> None:
    files = clients(release)
    imported: set[Any] = set()
    imported.update(*(KINDS[library](path, defined=False) for path in files))
    assert len(imported) > 40
    assert imported - KINDS[library](LIBRARIES / library, defined=True) == set()


def headers(release: Release, folder: Path) -> str:
    """Returns an option that finds its <infiniband/…> and <rdma/…>, and no other header of it."""
    for name in ("infiniband", "rdma"):
        (folder / name).symlink_to(release.root / "usr/include" / name)
    return f"-I{folder}"


def test_structures_and_constants_of_its_verbs_are_ours(release: Release, tmp_path: Path) -> None:
    option = headers(release, tmp_path)
    for level in test_layout.LEVELS:
        done = test_layout.compile_layout(tmp_path / "theirs", option, f"-DABI_LEVEL={level}")
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    theirs = test_layout.layout(tmp_path / "theirs")
    ours = test_layout.our_layout(tmp_path, level)
    assert {name: ours[name] for name in theirs} == theirs


def test_structures_and_constants_of_its_rdma_cm_are_ours(release: Release, tmp_path: Path) -> None:
    option = headers(release, tmp_path)
    for level in test_rdmacm.LEVELS:
        theirs = test_rdmacm.layout(tmp_path, option, f"-DABI_LEVEL={level}")
        if theirs is not None:
            break
    assert theirs == test_rdmacm.our_layout(tmp_path, level)
