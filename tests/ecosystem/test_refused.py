# SPDX-License-Identifier: BSD-3-Clause
"""Requests that are refused: a line on stderr names the cause, which a completion does not say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .lab import Lab

PROGRAM = Path(__file__).parent / "c" / "refused.c"
ACCESS, PROTECTION = "remote access error", "local protection error"
INVALID = "remote invalid request error"

REQUEST = r"QP \d+ refuses a request of QP \d+ for 64 bytes at 0x\w+ with rkey 0x\w+ "
REMOTE = REQUEST + r"\(IBV_WC_REM_ACCESS_ERR there\): "
LOCAL = r"a buffer of 64 bytes at 0x\w+ with lkey 0x\w+ is refused \(IBV_WC_LOC_PROT_ERR\): "
REGION = r" bytes?; the region: 65536 bytes at 0x\w+"
DOMAIN = "the region belongs to another protection domain than the queue pair"
SHORT = r"QP \d+ has a receive of {} bytes posted for a message of {} \(IBV_WC_LOC_LEN_ERR, .*"

CAUSES = {
    "rkey": (ACCESS, REMOTE + "this process has no region or window with this rkey"),
    "rkey-pd": (ACCESS, REMOTE + DOMAIN),
    "rkey-access": (ACCESS, REMOTE + "the region was registered without IBV_ACCESS_REMOTE_WRITE"),
    "rkey-bounds": (ACCESS, REMOTE + "it ends beyond the region by 40" + REGION),
    "rkey-before": (ACCESS, REMOTE + "it begins before the region by 8" + REGION),
    "qp-access": (
        ACCESS,
        REMOTE + "qp_access_flags of the queue pair lack IBV_ACCESS_REMOTE_WRITE",
    ),
    "lkey": (PROTECTION, LOCAL + "this process has no region with this lkey"),
    "lkey-pd": (PROTECTION, LOCAL + DOMAIN),
    "lkey-access": (PROTECTION, LOCAL + "the region was registered without IBV_ACCESS_LOCAL_WRITE"),
    "lkey-bounds": (PROTECTION, LOCAL + "it ends beyond the region by 1" + REGION),
    "atomic": (INVALID, r"QP \d+ refuses an atomic of QP \d+ at 0x\w+4, .* multiple of 8 .*"),
    "short": (INVALID, SHORT.format(63, 64)),
    "short-parts": (INVALID, SHORT.format(65535, 65536)),
    "no-receive": (
        "RNR retry counter exceeded",
        r"QP \d+ gives up, as no receive was posted at QP \d+ for 2 tries .*",
    ),
}


@pytest.fixture
def program(fabric: Lab) -> str:
    return fabric.compile(PROGRAM, "-libverbs")


@pytest.mark.parametrize("cause", CAUSES)
def test_a_request_that_is_refused_says_why_once(fabric: Lab, program: str, cause: str) -> None:
    status, line = CAUSES[cause]
    outcome = fabric.run(fabric.on("host0", program, cause)).check()
    assert outcome.stdout == f"{status}\n" * 2
    assert re.fullmatch(f"nupa: {line}\n", outcome.stderr), outcome.stderr


def test_requests_that_succeed_and_programs_that_want_no_hints_say_nothing(
    fabric: Lab, program: str
) -> None:
    done = fabric.run(fabric.on("host0", program, "none")).check()
    assert (done.stdout, done.stderr) == ("success\n" * 2, "")
    quiet = fabric.run(fabric.on("host0", program, "rkey"), env={"NUPA_QUIET": "1"}).check()
    assert (quiet.stdout, quiet.stderr) == (f"{ACCESS}\n" * 2, "")
