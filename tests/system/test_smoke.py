# SPDX-License-Identifier: BSD-3-Clause
"""Two guests on one CXL memory: messages, a file, and the machine itself.  Part of `make check`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .machine import Machine, StallError, booted
from .programs import copy_file, iperf3, net_up, perftest, register_dmabuf, rping

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]


def _exchange(machine: Machine, folder: Path) -> None:
    perftest(machine, "host0", "host1", "ib_send_lat", "-s", "64")
    perftest(machine, "host1", "host0", "ib_write_bw", "-s", "65536")
    copy_file(machine, "host0", "host1", 8 << 20, folder)
    perftest(machine, "host0", machine.here, "ib_send_lat", "-s", "64")
    rping(machine, machine.here, "host1")
    register_dmabuf(machine, "host0")
    net_up(machine, "host0", "host1")
    iperf3(machine, "host0", "host1")


def test_two_guests_and_the_machine_exchange_messages_files_and_frames(tmp_path: Path) -> None:
    for stalls in (0, 1):
        with booted() as machine:
            try:
                _exchange(machine, tmp_path)
                return
            except BaseException as error:
                print(machine.consoles(), file=sys.stderr)
                if not isinstance(error, StallError) or stalls:
                    raise
                print(f"once more, since an emulator may stand still: {error}", file=sys.stderr)
