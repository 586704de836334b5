# SPDX-License-Identifier: BSD-3-Clause
"""GIDs of a host and of its wires: a program that takes the wrong one is told the right one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from nupa.programs.pair import ProgramPair, free_port, run
from tests.programs.needs import needs
from tests.programs.stage import DEADLINE_S
from tests.unit.wire.keeping import address


def nupa(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "nupa.cli", *words]


@contextmanager
def fabrics(ends: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Makes two on this machine, whose hosts have the same names, with a wire in between."""
    names = ("near", "far")
    try:
        for name, own, other in zip(names, ends, ends[::-1], strict=True):
            made = nupa("up", "--fabric", name, "--wire", f"far0={other},{own}")
            run(made, deadline_s=DEADLINE_S).check()
        yield names
    finally:
        for name in names:
            run(nupa("down", name, "--force"), deadline_s=DEADLINE_S)


@pytest.mark.usefixtures("folder")
def test_a_program_that_took_the_gid_of_its_own_host_is_told_of_the_wire() -> None:
    port = free_port()
    program = [needs("ib_send_lat", "perftest"), "-x", "1", "-p", str(port)]
    with fabrics((address(0), address(1))) as names:
        server, client = (
            nupa("run", "--fabric", name, "--host", "host0", "--", *program) for name in names
        )
        with ProgramPair(
            server, [*client, "localhost"], env=os.environ, port=port, deadline_s=DEADLINE_S
        ) as pair:
            pair.start_server()
            pair.start_client()
            outcome = pair.client.wait(DEADLINE_S)
    assert "Failed status 12" in outcome.stderr
    assert "as host host0 has no QP " in outcome.stderr
    assert "from index 3 on (perftest: -x 3)" in outcome.stderr
