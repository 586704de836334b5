# SPDX-License-Identifier: BSD-3-Clause
"""Port counters from traffic between hosts, over one switch and over several."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from nupa.core.segment import HostTraffic
from nupa.fabric import Fabric
from nupa.fabric.counters import NAMES, count
from nupa.topology.file import load


def counters(fabric: Fabric, flows: Sequence[HostTraffic]) -> dict[str, dict[str, int]]:
    found = count(fabric.ports, flows, fabric._segment.route)
    return {port.name: found[port.index] for port in fabric.ports}


def flow(host: int, peer: int, **counts: int) -> HostTraffic:
    return HostTraffic(host, peer, *(counts.get(name, 0) for name in HostTraffic._fields[2:]))


def moved(counter: dict[str, int]) -> tuple[int, int, int, int]:
    xmit_data, xmit_packets, rcv_data, rcv_packets = (counter[name] for name in NAMES[:4])
    return xmit_data, xmit_packets, rcv_data, rcv_packets


def test_traffic_leaves_one_port_and_enters_the_other_of_each_link() -> None:
    with Fabric(hosts=2) as fabric:
        found = counters(fabric, [flow(0, 1, xmit_bytes=400, xmit_packets=3)])
    assert moved(found["host0/1"]) == moved(found["switch0/2"]) == (100, 3, 0, 0)
    assert moved(found["switch0/1"]) == moved(found["host1/1"]) == (0, 0, 100, 3)


def test_what_is_fetched_goes_the_other_way() -> None:
    with Fabric(hosts=2) as fabric:
        found = counters(fabric, [flow(0, 1, rcv_bytes=400, rcv_packets=3)])
    assert moved(found["host1/1"]) == (100, 3, 0, 0)
    assert moved(found["host0/1"]) == (0, 0, 100, 3)


def test_small_messages_are_not_rounded_away() -> None:
    with Fabric(hosts=2) as fabric:
        found = counters(fabric, [flow(0, 1, xmit_bytes=1, xmit_packets=1)] * 4)
    assert found["host0/1"]["port_xmit_data"] == 1


def test_waits_and_discards_count_at_the_port_that_could_not_send() -> None:
    with Fabric(hosts=2) as fabric:
        found = counters(fabric, [flow(1, 0, xmit_wait=5, xmit_discards=2)])
    assert (found["host1/1"]["port_xmit_wait"], found["host1/1"]["port_xmit_discards"]) == (5, 2)
    assert sum(port["port_xmit_wait"] for port in found.values()) == 5


def test_traffic_of_a_host_with_itself_passes_no_port() -> None:
    with Fabric(hosts=2) as fabric:
        found = counters(fabric, [flow(0, 0, xmit_bytes=400, xmit_wait=1)])
    assert not any(any(port.values()) for port in found.values())


def test_stacked_switches_show_where_traffic_went() -> None:
    with Fabric(topology=load("gpu24")) as fabric:
        found = counters(fabric, [flow(0, 12, xmit_bytes=4096, xmit_packets=1)])
    assert {name for name, port in found.items() if port["port_xmit_packets"]} == {
        "gpu0/1", "switch0/24", "switch1/24", "switch2/1",
    }  # fmt: skip
    assert {name for name, port in found.items() if port["port_rcv_packets"]} == {
        "switch0/1", "switch1/23", "switch2/23", "gpu12/1",
    }  # fmt: skip


@given(
    st.lists(
        st.builds(
            HostTraffic,
            st.integers(0, 15),
            st.integers(0, 15),
            *(st.integers(0, 2**40) for _ in range(6)),
        )
    )
)
def test_what_leaves_one_end_of_a_link_enters_the_other(flows: list[HostTraffic]) -> None:
    with Fabric(topology=load("storage16")) as fabric:
        found = count(fabric.ports, flows, fabric._segment.route)
        for port in fabric.ports:
            here, there = found[port.index], found[port.peer]
            assert here["port_xmit_data"] == there["port_rcv_data"]
            assert here["port_xmit_packets"] == there["port_rcv_packets"]
