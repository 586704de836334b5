# SPDX-License-Identifier: BSD-3-Clause
"""iSCSI over RDMA (iSER, RFC 7145): Debian's tgtd serves a disk to libiscsi's programs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nupa.programs.pair import free_port
from tests.ecosystem.lab import DEADLINE_S, Lab
from tests.programs.needs import needs

INITIATOR = "iqn.2026-11.test:initiator"
TARGET = "iqn.2026-11.test:disk"


@contextmanager
def target(fabric: Lab, folder: Path) -> Iterator[str]:
    """Yields the URL of a disk of 4 MiB that a tgtd under plain `nupa run` serves."""
    port, tcp = free_port(), free_port()
    (folder / "disk").write_bytes(os.urandom(4 << 20))
    env = {"TGT_IPC_SOCKET": str(folder / "tgt")}
    portals = "--iscsi", f"portal=127.0.0.1:{tcp}", "--iser", f"port={port},pool_sz_mb=16"
    tgtd = [needs("tgtd", "tgt"), "-f", "-d", "1", *portals]
    tgtadm = [needs("tgtadm", "tgt"), "--lld", "iser", "--tid", "1"]
    with fabric.start(fabric.on(None, *tgtd), env) as server:
        server.wait_said("work_timer_start(181) started", DEADLINE_S)
        for words in (
            f"--op new --mode target -T {TARGET}",
            f"--op new --mode logicalunit --lun 1 -b {folder / 'disk'}",
            "--op bind --mode target -I ALL",
            f"--op bind --mode target -Q {INITIATOR}",
        ):
            fabric.must([*tgtadm, *words.split()], env=env)
        yield f"iser://127.0.0.1:{port}/{TARGET}/1"
        assert server.running, server.outcome().describe()


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
