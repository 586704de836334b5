# SPDX-License-Identifier: BSD-3-Clause
"""Interfaces of hosts that are absent, join, and leave."""

from __future__ import annotations

from tests.net.lab import Net, ip

PING = ["ping", "-c", "1", "-W", "5"]


def test_interfaces_are_of_hosts_that_are_ready_and_follow_them(down: Net) -> None:
    down.ok("up", "--hosts", "2", "--spare", "1")
    assert "is up on host0 (10.0.0.1), host1 (10.0.0.2);" in down.ok("net", "up").stdout
    refused = down.nupa("net", "up", "--host", "host2")
    assert refused.returncode == 1
    assert "is absent: `nupa host add host2` lets it join" in refused.stderr
    down.ok("host", "add", "host2")
    assert "is up on host2 (10.0.0.3);" in down.ok("net", "up").stdout
    down.ok("net", "exec", "host0", "--", *PING, ip(2))
    down.ok("host", "remove", "host2")
    gone = down.nupa("net", "exec", "host0", "--", "ping", "-c", "1", "-W", "1", ip(2))
    assert gone.returncode == 1
    down.ok("net", "exec", "host0", "--", *PING, ip(1))
    down.ok("net", "down")
    down.ok("down")
