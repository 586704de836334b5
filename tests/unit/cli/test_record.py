# SPDX-License-Identifier: BSD-3-Clause
"""`nupa run --record`: which folders it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nupa.base.errors import LocalError
from nupa.cli.run.recorded import SUFFIX, prepare
from nupa.model.recording import layout
from tests.unit.model.recording.made import header


def test_the_suffix_is_the_readers() -> None:
    assert SUFFIX == layout.SUFFIX


def test_a_folder_is_made(tmp_path: Path) -> None:
    assert prepare(str(tmp_path / "a" / "b"), 7) == str(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_programs_on_one_fabric_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / f"host0-1-0{SUFFIX}").write_bytes(header(generation=7))
    (tmp_path / f"host1-2-0{SUFFIX}").write_bytes(bytes(4096))  # its process is making it
    prepare(str(tmp_path), 7)
    with pytest.raises(LocalError, match=r"has a recording of another fabric \(host0-1-0"):
        prepare(str(tmp_path), 8)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(LocalError, match=r"--record .*/f: File exists"):
        prepare(str(tmp_path / "f"), 7)
