# SPDX-License-Identifier: BSD-3-Clause
"""Refused requests: a line on stderr names the cause, which a completion or errno does not say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs.needs import needs

from .lab import Lab

PROGRAM = Path(__file__).parent / "c" / "refused.c"
ACCESS, PROTECTION = "remote access error", "local protection error"
INVALID = "remote invalid request error"

REQUEST = r"QP \d+ refuses a request of QP \d+ for 64 bytes at 0x\w+ with rkey 0x\w+ "
REMOTE = REQUEST + r"\(IBV_WC_REM_ACCESS_ERR there\): "
LOCAL = r"a buffer of 64 bytes at 0x\w+ with lkey 0x\w+ is refused \(IBV_WC_LOC_PROT_ERR\): "
REGION = r" bytes?; the region: 65536 bytes at 0x\w+"
DOMAIN = "belongs to another protection domain than the queue pair"
SHORT = r"QP \d+ has a receive of {} bytes posted for a message of {} \(IBV_WC_LOC_LEN_ERR, .*"

CAUSES = {
    "rkey": (ACCESS, REMOTE + "this process has no region or window with this rkey"),
    "rkey-pd": (ACCESS, REMOTE + "the region or window " + DOMAIN),
    "rkey-access": (
        ACCESS,
        REMOTE + "the region or window was made without IBV_ACCESS_REMOTE_WRITE",
    ),
    "rkey-bounds": (ACCESS, REMOTE + "it ends beyond the region by 40" + REGION),
    "rkey-before": (ACCESS, REMOTE + "it begins before the region by 8" + REGION),
    "qp-access": (
        ACCESS,
        REMOTE + "qp_access_flags of the queue pair lack IBV_ACCESS_REMOTE_WRITE",
    ),
    "lkey": (PROTECTION, LOCAL + "this process has no region with this lkey"),
    "lkey-pd": (PROTECTION, LOCAL + "the region " + DOMAIN),
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


@pytest.fixture
def unsupported(fabric: Lab) -> str:
    return fabric.compile(PROGRAM.with_name("unsupported.c"), "-libverbs")


LACKING = [
    "ibv_create_qp of another type than RC, UC, UD and XRC",
    "ibv_create_flow",
    "ibv_create_counters",
    "ibv_create_srq_ex with tag matching",
    "...",
]


@pytest.mark.parametrize("calls", [1, 4, 5])
def test_a_program_that_fails_after_calls_that_are_not_offered_names_four(
    fabric: Lab, unsupported: str, calls: int
) -> None:
    done = fabric.run(fabric.on("host0", unsupported, "3", str(calls)))
    assert done.returncode == 3
    assert done.stderr == (
        "nupa: this program ends with status 3.  It was refused, with EOPNOTSUPP: "
        f"{', '.join(LACKING[:calls])}; see docs/verbs.md\n"
    )


def test_a_program_that_probes_and_goes_on_without_says_nothing(
    fabric: Lab, unsupported: str
) -> None:
    assert fabric.run(fabric.on("host0", unsupported, "0", "5")).check().stderr == ""


def test_an_opcode_that_a_queue_pair_does_not_take_is_named_once(
    fabric: Lab, unsupported: str
) -> None:
    done = fabric.run(fabric.on("host0", unsupported, "0", "0")).check()
    assert re.fullmatch(
        r"nupa: QP \d+, of type RC, takes no work request with opcode 10, IBV_WR_TSO \(EINVAL\); "
        "see docs/verbs.md\n",
        done.stderr,
    ), done.stderr


@pytest.mark.parametrize(
    "command", [["ibv_devinfo", "-v"], ["ucx_info", "-d"], ["fi_info", "-p", "verbs"]]
)
def test_programs_that_probe_the_device_get_no_hints(fabric: Lab, command: list[str]) -> None:
    packages = {"ibv_devinfo": "ibverbs-utils", "ucx_info": "ucx-utils", "fi_info": "libfabric-bin"}
    needs(command[0], packages[command[0]])
    assert "nupa:" not in fabric.run(fabric.on("host0", *command)).check().stderr
