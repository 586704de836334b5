# SPDX-License-Identifier: BSD-3-Clause
"""Programs that meet through rdma_cm: the client starts when the server listens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from nupa.programs.pair import ProgramPair, free_port
from tests.programs.stage import DEADLINE_S, Stage

SERVER = "10.0.0.1"  # host0


def program(name: str, package: str = "rdmacm-utils") -> str:
    """Returns its path; skips the test where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}: apt-get install {package}")
    return found


def port() -> str:
    """Returns one that no other test uses: fabrics are apart, and so are their ports."""
    return str(free_port())


def wait_for_listener(stage: Stage, pair: ProgramPair, number: str, space: str = "tcp") -> None:
    """Waits until a process on the default fabric listens there."""
    while not any(
        (at["port"], at["space"]) == (int(number), space) for at in stage.show()["listeners"]
    ):
        assert pair.server.running, pair.server.outcome().describe()
        assert pair.elapsed_s < pair.deadline_s, f"no process listens on {space} port {number}"


@contextmanager
def start(
    stage: Stage,
    server: Sequence[str],
    client: Sequence[str],
    *,
    number: str,
    space: str = "tcp",
    hosts: tuple[str, str] = ("host0", "host1"),
    deadline_s: float = DEADLINE_S,
) -> Iterator[ProgramPair]:
    """Yields both running.  The fabric must be up."""
    with ProgramPair(
        stage.nupa_run(server, hosts[0]),
        stage.nupa_run(client, hosts[1]),
        env=stage.env,
        deadline_s=deadline_s,
    ) as pair:
        pair.start_server()
        wait_for_listener(stage, pair, number, space)
        pair.start_client()
        yield pair
