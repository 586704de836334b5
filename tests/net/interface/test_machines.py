# SPDX-License-Identifier: BSD-3-Clause
"""Interfaces on a fabric in memory that several kernels share."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cross.peers.kernels import other_kernel
from tests.net.lab import Net, ip

_TOPOLOGY = """
[segment]
segment_bytes = 134217728

[[switch]]
name = "switch0"
ports = 2

[[host]]
name = "host"
count = 2
switch = "switch0"
"""
# The steps of a machine that hears nothing of host0 any more.
_EVICT = (
    "import sys; from nupa.fabric import Fabric; print(Fabric.open(sys.argv[1]).evict('host0'))"
)


def test_a_pump_that_was_taken_for_dead_comes_back(down: Net, tmp_path: Path) -> None:
    topology = tmp_path / "machines.toml"
    topology.write_text(_TOPOLOGY)
    down.ok("up", "--topology", str(topology))
    down.ok("net", "up")
    ping = ["ping", "-c", "1", "-W", "5"]
    down.exec("host0", [*ping, ip(1)])

    evict = [*other_kernel(tmp_path), sys.executable, "-P", "-c", _EVICT, "default"]
    assert down.run(evict).stdout == "1\n"

    # The interfaces are those of before, once the pump has attached again.
    for _ in range(20):
        if down.exec("host1", [*ping, ip(0)], check=False).ok:
            break
    down.exec("host0", [*ping, ip(1)])
