# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a wire's traffic: counters of ports."""

from __future__ import annotations

from typing import Any

from tests.wire.lab import HOSTS, Wired

ROUNDS = 200


def counters(wire: Wired, end: int) -> dict[str, Any]:
    """Returns the counters of the port of the programs' host at that end."""
    (port,) = (each for each in wire.side(end).show()["ports"] if each["name"] == f"{HOSTS[end]}/1")
    found: dict[str, Any] = port["counters"]
    return found


def test_packets_that_come_by_a_wire_are_counted_at_the_port(wire: Wired) -> None:
    before = [counters(wire, end) for end in (0, 1)]
    wire.run_pair(["ib_read_lat", "-s", "512", "-n", str(ROUNDS)])
    after = [counters(wire, end) for end in (0, 1)]
    server, client = (
        {name: new[name] - old[name] for name in new}
        for old, new in zip(before, after, strict=True)
    )
    # A READ that is sent again, as a core was busy, is answered again.
    assert client["port_xmit_packets"] >= server["port_rcv_packets"] >= ROUNDS
    assert server["port_xmit_packets"] >= client["port_rcv_packets"] >= ROUNDS
    assert client["port_rcv_data"] >= ROUNDS * 512 // 4 > server["port_rcv_data"]
