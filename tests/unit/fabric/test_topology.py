# SPDX-License-Identifier: BSD-3-Clause
"""Topologies: links, routes, and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.topology.topology import (
    HOPS_MAX,
    HOSTS_MAX,
    NAME_BYTES_MAX,
    HostConfig,
    LinkConfig,
    SwitchConfig,
    Topology,
    TopologyError,
    TrunkConfig,
    speed_name,
    star,
)


def chain(switches: int) -> Topology:
    """Makes a row of switches with a host on each."""
    return Topology(
        "chain",
        tuple(SwitchConfig(f"s{i}", 3) for i in range(switches)),
        tuple(HostConfig(f"h{i}", f"s{i}") for i in range(switches)),
        tuple(TrunkConfig((f"s{i}", f"s{i + 1}")) for i in range(switches - 1)),
    )


def names(topology: Topology, src: int, dst: int) -> list[str]:
    return [topology.ports[port].name for port in topology.routes[src][dst]]


def test_a_route_passes_both_ports_of_every_link() -> None:
    assert names(chain(3), 0, 2) == [
        "h0/1", "s0/1", "s0/2", "s1/2", "s1/3", "s2/2", "s2/1", "h2/1",
    ]  # fmt: skip


def test_a_host_needs_no_route_to_itself() -> None:
    assert star(3).routes[1][1] == ()


def test_of_equal_ways_the_one_over_the_first_switches_is_taken_there_and_back() -> None:
    ring = Topology(
        "ring",
        tuple(SwitchConfig(f"s{i}", 4) for i in range(4)),
        (HostConfig("a", "s0"), HostConfig("b", "s2")),
        (
            TrunkConfig(("s2", "s3")),
            TrunkConfig(("s3", "s0")),
            TrunkConfig(("s1", "s2")),
            TrunkConfig(("s0", "s1")),
        ),
    )
    there = ring.routes[0][1]
    assert [ring.ports[port].name.partition("/")[0] for port in there] == [
        "a", "s0", "s0", "s1", "s1", "s2", "s2", "b",
    ]  # fmt: skip
    assert ring.routes[1][0] == there[::-1]


def test_of_parallel_trunks_the_one_on_the_lowest_port_is_taken_both_ways() -> None:
    topology = Topology(
        "parallel",
        (SwitchConfig("s0", 4), SwitchConfig("s1", 4)),
        (HostConfig("a", "s0", 1), HostConfig("b", "s1", 1)),
        (TrunkConfig(("s0", "s1"), (3, 2)), TrunkConfig(("s0", "s1"), (2, 3))),
    )
    assert names(topology, 0, 1) == ["a/1", "s0/1", "s0/2", "s1/3", "s1/1", "b/1"]
    assert topology.routes[1][0] == topology.routes[0][1][::-1]


def test_a_named_port_is_kept_for_who_named_it() -> None:
    topology = Topology(
        "t", (SwitchConfig("s", 2),), (HostConfig("first", "s"), HostConfig("second", "s", 1))
    )
    assert names(topology, 0, 1) == ["first/1", "s/2", "s/1", "second/1"]


@given(st.integers(1, 24), st.data())
def test_links_join_two_ends_and_routes_follow_links(hosts: int, data: st.DataObject) -> None:
    switches = data.draw(st.integers(1, 5))
    on = data.draw(st.lists(st.integers(0, switches - 1), min_size=hosts, max_size=hosts))
    topology = Topology(
        "any",
        tuple(SwitchConfig(f"s{i}", 64) for i in range(switches)),
        tuple(HostConfig(f"h{i}", f"s{s}") for i, s in enumerate(on)),
        # A random tree.
        tuple(
            TrunkConfig((f"s{data.draw(st.integers(0, i - 1))}", f"s{i}"))
            for i in range(1, switches)
        ),
    )
    ports = topology.ports
    for at, port in enumerate(ports):
        assert ports[port.peer].peer == at
        assert port.peer != at
    assert len({port.name for port in ports}) == len(ports)
    for src in range(hosts):
        for dst in range(hosts):
            path = topology.routes[src][dst]
            assert path == topology.routes[dst][src][::-1]
            if src == dst:
                continue
            assert (path[0], path[-1]) == (src, dst)
            for egress, ingress in zip(path[0::2], path[1::2], strict=True):
                assert ports[egress].peer == ingress
            for ingress, egress in zip(path[1:-1:2], path[2::2], strict=True):
                assert ports[ingress].is_switch
                assert ports[ingress].node == ports[egress].node


def test_as_many_hosts_as_there_can_be_are_accepted_and_one_more_is_not() -> None:
    assert len(star(HOSTS_MAX).hosts) == HOSTS_MAX
    with pytest.raises(TopologyError, match="255 hosts: a fabric has 1 to 254"):
        star(HOSTS_MAX + 1)
    with pytest.raises(TopologyError, match="0 hosts"):
        star(0)


def test_more_hosts_than_ports_is_refused_with_the_switch_and_the_host() -> None:
    hosts = tuple(HostConfig(f"h{i}", "s") for i in range(3))
    with pytest.raises(TopologyError, match="h2: all 2 ports of s are taken; give it more ports"):
        Topology("t", (SwitchConfig("s", 2),), hosts)


def test_the_longest_way_is_accepted_and_a_longer_one_is_not() -> None:
    assert len(chain(6).routes[0][5]) == 14 <= HOPS_MAX
    with pytest.raises(TopologyError, match="h0 to h6 passes 16 ports: at most 15"):
        chain(7)


def test_the_longest_name_is_accepted_and_a_longer_one_is_not() -> None:
    # A port's name, "NAME/1", has the same limit.
    longest = "h" * (NAME_BYTES_MAX - 2)
    Topology("t", (SwitchConfig("s", 1),), (HostConfig(longest, "s"),))
    with pytest.raises(TopologyError, match=r"port name .* has more than 31 bytes"):
        Topology("t", (SwitchConfig("s", 1),), (HostConfig(longest + "h", "s"),))
    with pytest.raises(TopologyError, match="has 32 bytes: names have 1 to 31"):
        Topology("t", (SwitchConfig("s", 1),), (HostConfig("ü" * 16, "s"),))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\n", "\x1b[31m"])
def test_a_name_that_a_terminal_or_a_path_would_misread_is_refused(name: str) -> None:
    with pytest.raises(TopologyError, match="host name"):
        Topology("t", (SwitchConfig("s", 1),), (HostConfig(name, "s"),))


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (
            ((SwitchConfig("s", 2),), (HostConfig("h", "s"), HostConfig("h", "s"))),
            "host name 'h' is used twice",
        ),
        (
            ((SwitchConfig("s", 2), SwitchConfig("s", 2)), (HostConfig("h", "s"),)),
            "switch name 's' is used twice",
        ),
        (((SwitchConfig("x", 2),), (HostConfig("x", "x"),)), "'x' names a host and a switch"),
        (
            ((SwitchConfig("s", 2),), (HostConfig("h", "t"),)),
            "h: there is no switch 't'; the switches are: s",
        ),
        (
            ((SwitchConfig("s", 2),), (HostConfig("h", "s", 3),)),
            "h: s has no port 3; its ports are 1 to 2",
        ),
        (
            ((SwitchConfig("s", 2),), (HostConfig("g", "s", 1), HostConfig("h", "s", 1))),
            "h: port 1 of s is taken by g",
        ),
        (
            (
                (SwitchConfig("s", 2), SwitchConfig("t", 2)),
                (HostConfig("g", "s"), HostConfig("h", "t")),
            ),
            "no way from g to h: add a trunk that joins s and t",
        ),
        (
            ((SwitchConfig("s", 3),), (HostConfig("h", "s"),), (TrunkConfig(("s", "s")),)),
            "a trunk joins two switches",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(topology: tuple[object, ...], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology("t", *topology)  # type: ignore[arg-type]


def test_an_unknown_link_layer_is_refused() -> None:
    with pytest.raises(TopologyError, match="choose one of infiniband, ethernet"):
        Topology("t", (SwitchConfig("s", 1),), (HostConfig("h", "s"),), link_layer="token ring")


def test_speeds_are_named_by_generation() -> None:
    assert speed_name(LinkConfig().speed_mtps) == "Gen5"
    assert speed_name(2500) == "2.5 GT/s"
