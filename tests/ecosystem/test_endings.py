# SPDX-License-Identifier: BSD-3-Clause
"""Programs over UCX, started and ended many times: UCX unmaps memory before it deregisters it.

NUPA_ENDINGS is how many of each there are: 3, unless it says otherwise (`make soak`: 250).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.programs.needs import needs

from .lab import Lab
from .test_mpi import mpirun, program

TRANSPORTS = ["rc_v", "ud_verbs"]
COUNT = int(os.environ.get("NUPA_ENDINGS", "3"))
EACH_S = 40.0  # on a busy machine
pytestmark = pytest.mark.timeout(60 + COUNT * EACH_S)

REPEAT = """
i=0
while [ $i -lt $0 ]; do
    "$@" || { echo "run $i ended with $?"; exit 1; }
    i=$((i + 1))
done
echo "$i ended well"
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_ranks_that_unmap_what_they_sent_end_well(fabric: Lab, transport: str) -> None:
    command = [*mpirun(2, transport), program(fabric, "endings")]
    repeated = fabric.on("host0", "sh", "-c", REPEAT, str(COUNT), *command)
    output = fabric.must(repeated, deadline_s=COUNT * EACH_S)
    assert f"{COUNT} ended well" in output


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_ucx_server_and_its_client_end_well(fabric: Lab, transport: str) -> None:
    needs("ucx_perftest", "ucx-utils")
    env = {"UCX_TLS": f"{transport},self", "UCX_NET_DEVICES": "nupa_rdma0:1"}
    options = ["-t", "tag_bw", "-w", "10", "-n", "50", "-s", "100000"]
    for _ in range(COUNT):
        fabric.run_pair(["ucx_perftest"], *options, env=env)


CRASH = """
import ctypes, faulthandler
if {late}:
    import nupa.verbs
    context = nupa.verbs.Context(name="nupa_rdma0")
    faulthandler.enable()
else:
    faulthandler.enable()
    import nupa.verbs
    context = nupa.verbs.Context(name="nupa_rdma0")
nupa.verbs.CQ(context, 8)
pd = nupa.verbs.PD(context)
mr = nupa.verbs.MR(pd, 4096, 1)
ctypes.string_at(8)
"""


@pytest.mark.parametrize("late", [False, True], ids=["enabled before", "enabled after"])
def test_pythons_faulthandler_tells_of_a_crash_once(
    fabric: Lab, tmp_path: Path, late: bool
) -> None:
    script = tmp_path / "crash.py"
    script.write_text(CRASH.format(late=late))
    outcome = fabric.run(fabric.on("host0", sys.executable, str(script)))
    assert outcome.returncode != 0
    assert outcome.stderr.count("Fatal Python error: Segmentation fault") == 1, outcome.describe()
    assert "crash.py" in outcome.stderr
