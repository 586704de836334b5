# SPDX-License-Identifier: BSD-3-Clause
"""Programs whose limits (ulimit) are too low: errno and one line on stderr name the same cause."""

from __future__ import annotations

import re

import pytest

from nupa.programs.pair import ProgramOutcome, free_port
from tests.programs.needs import needs

from .lab import Lab


def pingpong(fabric: Lab, limit: str) -> ProgramOutcome:
    """Returns how a client under a limit ends, whose server has none."""
    needs("ibv_rc_pingpong", "ibverbs-utils")
    port = free_port()
    server = ["ibv_rc_pingpong", "-g", "1", "-n", "10", "-p", str(port)]
    client = ["sh", "-c", f"ulimit {limit}; exec {' '.join(server)} localhost"]
    return fabric.pair(server, client, port=port).run().client


@pytest.mark.parametrize("limit_mib", [100, 600, 720])
def test_the_address_space_that_is_needed_is_named_and_suffices(
    fabric: Lab, limit_mib: int
) -> None:
    outcome = pingpong(fabric, f"-v {limit_mib << 10}")
    assert outcome.returncode != 0
    hint = re.search(
        r"^nupa: the address space of this process is too small: `ulimit -v` allows (\d+) MiB, "
        r"of which \d+ are in use, and \d+ more are needed: allow \d+ MiB \(`ulimit -v (\d+)`\)",
        outcome.stderr,
        re.MULTILINE,
    )
    assert hint, outcome.describe()
    assert int(hint[1]) == limit_mib
    assert outcome.stderr.count("too small") == 1
    enough = pingpong(fabric, f"-v {hint[2]}")
    assert (enough.returncode, enough.stderr) == (0, ""), enough.describe()
