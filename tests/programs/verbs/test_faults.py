# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified programs while one packet in a hundred is lost: they finish with right data."""

from __future__ import annotations

import json
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nupa.measure.control import FileOperation
from nupa.measure.transfer import OPERATIONS, TransferJob
from nupa.programs.pair import ProgramPair, free_port
from tests.programs.rdmacm.test_rdmacm import pings, rping
from tests.programs.stage import DEADLINE_S, Stage, sizes_of

#: Of the first 400 packets it hits these: 1, 52, 60, 200, 319.
SEED = "38"


@pytest.fixture
def lossy(stage: Stage) -> Iterator[Stage]:
    """The default fabric, which loses one packet in a hundred; some are lost at the end."""
    for words in (["up"], ["fault", "host0", "add", "drop", "--probability", "1%", "--seed", SEED]):
        stage.ok(*words)
    yield stage
    (fault,) = faults(stage)
    stage.ok("down")
    assert 0 < fault["hits"] < fault["seen"] // 10, fault


def faults(stage: Stage) -> list[dict[str, Any]]:
    outcome = stage.run(stage.nupa("fault", "ls", "--json")).check()
    found: list[dict[str, Any]] = json.loads(outcome.stdout)
    return found


# Lost packets are sent again after 17 ms (4.096 us * 2^12), not after perftest's 67.
@pytest.mark.parametrize(
    ("program", "options", "size"),
    [
        ("ib_write_bw", ("-n", "500", "-s", "65536"), 65536),
        ("ib_send_bw", ("-n", "500", "-s", "4096"), 4096),
        ("ib_read_lat", ("-n", "500"), 2),
        ("ib_atomic_lat", ("-n", "500"), 8),
    ],
)
def test_perftest_finishes(lossy: Stage, program: str, options: tuple[str, ...], size: int) -> None:
    result = lossy.run_pair([program, "-F", "-u", "12", *options])
    assert sizes_of(result.client.stdout) == [size]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_file_arrives_as_it_was_sent(
    lossy: Stage, operation: FileOperation, tmp_path: Path
) -> None:
    port = free_port()
    job = TransferJob(operation, (8 << 20) + 5, tmp_path, port)
    job.make_file()
    server = lossy.nupa_run(job.command("server"), "host0")
    client = lossy.nupa_run(job.command("client"), "host1")
    pair = ProgramPair(server, client, env=lossy.env, port=port, deadline_s=DEADLINE_S)
    moved = job.result(pair.run().check())
    assert moved.sent_sha256 == moved.received_sha256
    assert job.sent.read_bytes() == job.received.read_bytes()


def test_rping_finds_its_data_intact(lossy: Stage) -> None:
    result = rping(lossy, "-C", "40")
    assert pings(result.client.stdout) == list(range(40))


@pytest.mark.parametrize("program", ["ib_write_bw", "ib_send_bw", "ib_read_bw"])
def test_a_stopped_peer_is_given_up_where_a_timeout_fault_lies(stage: Stage, program: str) -> None:
    """As on hardware; without the fault its peer would wait for it."""
    assert stage.run(stage.nupa("up")).ok
    with stage.pair([program, "-F", "-u", "8", "-D", "40"]) as pair:
        pair.start_server()
        pair.start_client()
        stage.wait_for_contact(pair)
        assert stage.run(stage.nupa("fault", "host0", "add", "timeout")).ok
        pair.server.signal(signal.SIGSTOP)
        assert select.select([pair.client.pidfd], [], [], DEADLINE_S)[0]
        outcome = pair.client.outcome()
    assert not outcome.ok
    assert "status 12" in outcome.describe() or "retry counter exceeded" in outcome.describe()
    stage.ok("down")
