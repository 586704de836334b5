# SPDX-License-Identifier: BSD-3-Clause
"""A guest's rdma_rxe over frames: SEND, WRITE and READ with checked data.  Part of `make check`."""

from __future__ import annotations

import sys

import pytest

from tests.system.machine import StallError

from . import programs
from .lab import Lab, by_frames

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]


def _exchange(lab: Lab) -> None:
    assert " 0% packet loss" in lab.guest.run("ping", "-c", "2", lab.here.address)
    for server in ("here", "guest"):
        programs.pingpong(*lab.ends(server), "rc", "-s", "4099", rounds=20)
        programs.rping(*lab.ends(server), 3000, 5)
    wire = lab.here.wire()
    assert (wire["medium"], wire["icrc"], wire["state"]) == ("FRAMES", "exact", "UP")
    # Not `foreign`, as which late packets to a program that has ended count.
    assert (wire["malformed"], wire["icrc_errors"]) == (0, 0)


def test_rdma_rxe_in_a_guest_and_nupa_exchange_data_in_both_directions() -> None:
    for stalls in (0, 1):
        with by_frames() as lab:
            try:
                _exchange(lab)
                return
            except BaseException as error:
                print(lab.machine.consoles(), file=sys.stderr)
                if not isinstance(error, StallError) or stalls:
                    raise
                print(f"once more, since an emulator may stand still: {error}", file=sys.stderr)
