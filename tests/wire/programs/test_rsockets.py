# SPDX-License-Identifier: BSD-3-Clause
"""Programs over rsockets: rstream, riostream, rcopy, udpong, and ordinary ones by librspreload.

Not tests/programs/rsockets/test_rsockets.py: its scripts fork the process of the other host, so
that both are on one machine.
"""

from __future__ import annotations

import pytest

from tests.programs.rsockets import test_rsocket_programs, test_rspreload
from tests.programs.rsockets.test_rspreload import preload

__all__ = ["preload"]

pytestmark = pytest.mark.timeout(120)

MTU_BYTES = 9000  #: for datagrams of more than 1024 bytes

#: Not over a wire, and why.
_LEFT_OUT = {
    "test_rstream_runs_all_of_its_default_tests": "they take a minute, and their sizes are others'",
    "test_what_rsockets_cannot_reach_is_tried_by_tcp": "its address is this machine's",
    "test_a_server_that_forks_moves_its_connection_to_the_child": "its programs are on one machine",
}
for _module in (test_rsocket_programs, test_rspreload):
    globals().update(
        (name, test)
        for name, test in vars(_module).items()
        if name.startswith("test_") and name not in _LEFT_OUT
    )
