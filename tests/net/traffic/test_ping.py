# SPDX-License-Identifier: BSD-3-Clause
"""ping over nupa_net0: both families, all sizes, floods, and each host of a rack to each other."""

from __future__ import annotations

import pytest

from tests.net.lab import DEADLINE_S, Net, ip
from tests.net.real import NAME, hears_nothing, link, ping, ping_all, script
from tests.programs.needs import needs

LINK_LOCAL = f"fe80::aff:fe00:2%{NAME}"
UNIQUE_LOCAL = "fd4e:5550:4100::2"
BOTH_FAMILIES = [ip(1), UNIQUE_LOCAL]


@pytest.mark.parametrize("to", [*BOTH_FAMILIES, LINK_LOCAL])
def test_ping_gets_all_its_answers(net_by_user: Net, to: str) -> None:
    ping_all(net_by_user, "host0", to, 20, "-i", "0.005")


@pytest.mark.parametrize("to", BOTH_FAMILIES)
def test_pings_of_all_kinds_of_sizes_come_back_as_they_were(net: Net, to: str) -> None:
    # 65232 is the most that IPv6 sends in one frame, 65252 IPv4; beyond are fragments.
    for size in (0, 1, 15, 16, 17, 1472, 1473, 16384, 60000, 65232, 65233, 65252, 65253, 65507):
        ping_all(net, "host0", to, 2, "-i", "0.002", "-s", str(size))


@pytest.mark.parametrize("to", BOTH_FAMILIES)
def test_a_flood_of_large_pings_loses_none(net_by_user: Net, to: str) -> None:
    ping_all(net_by_user, "host0", to, 400, "-f", "-q", "-s", "60000")


def test_floods_both_ways_at_once_lose_none(net: Net) -> None:
    flood = ["-n", "-f", "-q", "-s", "60000", "-c", "400", ip(0)]
    other = net.start("host1", [needs("ping", "iputils-ping"), *flood])
    ping_all(net, "host0", ip(1), 400, "-f", "-q", "-s", "60000")
    assert "400 packets transmitted" in other.wait(DEADLINE_S).check().stdout


def test_an_interface_pings_itself_and_nobody_who_is_not_there(net: Net) -> None:
    ping(net, "host0", ip(0), "-c", "1", "-W", "5")
    hears_nothing(net, "host0", "10.0.0.99")


def test_24_hosts_of_a_rack_all_ping_each_other(down: Net) -> None:
    hosts = range(24)
    down.ok("up", "--topology", "rack24", "--name", "default")
    down.ok("net", "up")
    names = [entry["host"] for entry in down.ls()]
    assert len(names) == len(hosts)
    programs = [
        down.start(names[host], script(down, "ping_all", *(ip(to) for to in hosts if to != host)))
        for host in hosts
    ]
    for program in programs:
        assert program.wait(DEADLINE_S).check().stdout.strip() == "23 of 23 answered"
    for name in (names[0], names[-1]):
        stats = link(down, name)["stats64"]
        assert stats["rx"]["errors"] == stats["tx"]["errors"] == stats["tx"]["dropped"] == 0
