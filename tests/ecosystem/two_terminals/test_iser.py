# SPDX-License-Identifier: BSD-3-Clause
"""iSCSI over RDMA (iSER, RFC 7145): Debian's tgtd serves a disk to libiscsi's programs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nupa.programs.pair import free_port
from nupa.programs.tgt import INITIATOR, TgtPlace, TgtTarget
from tests.ecosystem.lab import Lab
from tests.programs.needs import needs


@contextmanager
def target(fabric: Lab, folder: Path) -> Iterator[str]:
    """Yields the URL of a disk of 4 MiB that a tgtd under plain `nupa run` serves."""
    place = TgtPlace("127.0.0.1", free_port(), free_port())
    disk = folder / "disk"
    disk.write_bytes(os.urandom(4 << 20))
    programs = {name: needs(name, "tgt") for name in ("tgtd", "tgtadm")}

    def serve(argv: Sequence[str]) -> list[str]:
        words = fabric.on(None, programs[argv[0]], *argv[1:])
        return ["env", *(f"{key}={value}" for key, value in fabric.env.items()), *words]

    def admin(argv: Sequence[str]) -> list[str]:
        return [programs[argv[0]], *argv[1:]]

    with TgtTarget(serve, admin, "iser", place, disk, folder / "tgt") as tgtd:
        yield place.url("iser")
        assert tgtd.server.running, tgtd.server.outcome().describe()


@pytest.mark.parametrize(
    "command", ["Read10", "Write10", "Read16", "Write16", "Verify10", "WriteVerify10", "OrWrite"]
)
def test_an_iser_target_does_what_libiscsis_tests_expect(
    fabric: Lab, tmp_path: Path, command: str
) -> None:
    tests = [needs("iscsi-test-cu", "libiscsi-bin"), "-i", INITIATOR, "-d", "-f"]
    with target(fabric, tmp_path) as url:
        said = fabric.must(fabric.on(None, *tests, "-t", f"SCSI.{command}.Simple", url))
    assert re.search(r"Simple \.\.\.\s*passed", said), said
    assert re.search(r"^ +tests +1 +1 +1 +0 ", said, re.MULTILINE), said


def test_an_iser_target_is_read_with_eight_requests_at_a_time(fabric: Lab, tmp_path: Path) -> None:
    perf = [needs("iscsi-perf", "libiscsi-bin"), "-i", INITIATOR, "-b", "64", "-m", "8", "-t", "1"]
    with target(fabric, tmp_path) as url:
        said = fabric.must(fabric.on(None, *perf, url))
        moved = fabric.moved_bytes()
    assert "capacity is 8192 blocks" in said
    assert "finished" in said
    assert min(moved["host0"], moved["host1"]) > 4 << 20
