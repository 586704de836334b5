# SPDX-License-Identifier: BSD-3-Clause
"""Rates between two snapshots: of ports, hosts, links, tenants and interfaces, never negative."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.fabric.counters import HW_NAMES, NAMES
from nupa.live.rates import FabricRates, TrafficRate, between, steady
from nupa.live.snapshot import Snapshot

S = 1_000_000_000


def port(name: str, peer: str, **counts: int) -> dict[str, Any]:
    counters = dict.fromkeys(NAMES, 0) | counts
    return {"name": name, "peer": peer, "nominal_gbps": 8.0, "counters": counters}


def host(name: str, tenant: str = "", **errors: int) -> dict[str, Any]:
    counters = dict.fromkeys(HW_NAMES, 0) | errors
    return {"name": name, "port": f"{name}/1", "tenant": tenant, "hw_counters": counters}


def snapshot(
    at_s: float,
    ports: list[dict[str, Any]],
    hosts: list[dict[str, Any]],
    generation: str = "1",
    interfaces: list[dict[str, Any]] | None = None,
) -> Snapshot:
    tenants = [{"name": name} for name in sorted({host["tenant"] for host in hosts} - {""})]
    fabric = {"generation": generation, "ports": ports, "hosts": hosts, "tenants": tenants}
    return Snapshot(fabric, interfaces or [], [], [], True, int(at_s * S), 0)


def pair(at_s: float, words: int, packets: int, **rest: Any) -> Snapshot:
    """Two hosts of two tenants, from the first of which so much went to the second."""
    sent = {"port_xmit_data": words, "port_xmit_packets": packets}
    came = {"port_rcv_data": words, "port_rcv_packets": packets}
    ports = [port("a/1", "b/1", **sent), port("b/1", "a/1", **came)]
    return snapshot(at_s, ports, [host("a", "red"), host("b", "blue")], **rest)


def rates(before: Snapshot, after: Snapshot) -> FabricRates:
    found = between(before, after)
    assert found is not None
    return found


def test_rates_are_per_second_and_in_bytes() -> None:
    found = rates(pair(1, 100, 10), pair(3, 600, 30))
    sent, came = TrafficRate(1000, 10, 0, 0), TrafficRate(0, 0, 1000, 10)
    assert found.seconds == 2
    assert found.ports == {"a/1": sent, "b/1": came}
    assert found.hosts == {"a": sent, "b": came}
    assert found.tenants == {"red": sent, "blue": came}


def test_each_link_is_once_with_its_load_in_both_directions() -> None:
    # 8 Gb/s nominal: 10^9 bytes/s.
    found = rates(pair(0, 0, 0), pair(1, 125_000_000, 1))
    (link,) = found.links
    assert (link.port, link.peer) == ("a/1", "b/1")
    assert (link.xmit_load, link.rcv_load) == (0.5, 0.0)


def test_errors_of_ports_and_hosts_are_errors() -> None:
    before = snapshot(0, [port("a/1", "b/1"), port("b/1", "a/1")], [host("a"), host("b")])
    after = snapshot(
        2,
        [port("a/1", "b/1", port_xmit_discards=4), port("b/1", "a/1", link_downed=2)],
        [host("a", packet_seq_err=6), host("b", multicast_rcv_packets=8)],
    )
    found = rates(before, after)
    assert found.ports["a/1"].errors == 2
    assert found.hosts["a"].errors == 5
    assert found.hosts["b"].errors == 1  # multicast packets are traffic
    assert found.links[0].rate.errors == 3


def test_a_counter_that_was_reset_has_grown_from_zero() -> None:
    assert rates(pair(0, 500, 50), pair(1, 100, 10)).ports["a/1"] == TrafficRate(400, 10, 0, 0)


@pytest.mark.parametrize("at_s", [1, 0.5])
def test_without_time_there_are_no_rates(at_s: float) -> None:
    assert between(pair(1, 1, 1), pair(at_s, 2, 2)) is None


def test_another_fabric_has_no_rates_with_this_one() -> None:
    assert between(pair(0, 1, 1), pair(1, 2, 2, generation="2")) is None
    assert between(pair(0, 1, 1, generation=""), pair(1, 2, 2, generation="")) is None


def test_counters_do_not_go_back_while_a_process_ends() -> None:
    # Its counts are nowhere for a moment, then with those of former processes.
    before, during, after = pair(0, 500, 50), pair(1, 100, 10), pair(2, 600, 60)
    during = steady(before, during)
    after = steady(during, after)
    assert rates(before, during).ports["a/1"] == TrafficRate()
    assert rates(during, after).ports["a/1"] == TrafficRate(400, 10, 0, 0)


def test_counters_of_another_fabric_are_left_alone() -> None:
    after = steady(pair(0, 500, 50), pair(1, 100, 10, generation="2"))
    assert after.fabric["ports"][0]["counters"]["port_xmit_data"] == 100


def test_interfaces_have_rates_of_frames_and_drops() -> None:
    def up(**counters: int) -> list[dict[str, Any]]:
        return [{"host": "a", "counters": counters}]

    before = pair(0, 0, 0, interfaces=up(tx_bytes=100, tx_full=1, rx_packets=9))
    after = pair(2, 0, 0, interfaces=up(tx_bytes=300, tx_full=5, rx_packets=1, tx_grants=9))
    # rx_packets: the pump was started again.
    assert rates(before, after).interfaces == {"a": TrafficRate(100, 0, 0, 0.5, 2)}


COUNTS = st.fixed_dictionaries({name: st.integers(0, 2**64 - 1) for name in NAMES})


@given(st.lists(COUNTS, min_size=4, max_size=4), st.floats(1e-3, 1e6))
def test_no_rate_is_negative(counts: list[dict[str, int]], seconds: float) -> None:
    def at(at_s: float, a: dict[str, int], b: dict[str, int]) -> Snapshot:
        ports = [port("a/1", "b/1", **a), port("b/1", "a/1", **b)]
        return snapshot(at_s, ports, [host("a", "red"), host("b")])

    found = rates(at(0, *counts[:2]), at(seconds, *counts[2:]))
    every = [*found.ports.values(), *found.hosts.values(), *found.tenants.values()]
    assert min(map(min, every)) >= 0
