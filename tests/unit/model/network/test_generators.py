# SPDX-License-Identifier: BSD-3-Clause
"""Networks by size: their levels, their graphs, and how the command line names them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.model.errors import ModelError
from nupa.model.network import fabric, generators
from nupa.model.network.build import graph
from nupa.model.network.graph import Graph
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.network.path import Cable
from nupa.model.network.text import parse, split
from nupa.model.profile.profile import Profile, load
from nupa.topology import file as topology_file

HDR = load("ib-hdr")
HOP_NS = HDR["hop"]


def _medium(reach_m: float = 100.0) -> Profile:
    figures = dict(HDR.figures)
    kept = {"reach": figures["mtu"]._replace(value=reach_m, low=reach_m, high=reach_m)}
    return replace(HDR, name="tape", kind="medium", figures=kept)


def _drawn(made: Graph) -> networkx.MultiDiGraph:
    drawn = networkx.MultiDiGraph()
    for link in made.links():
        drawn.add_edge(
            link.source, link.target, rate=link.kind.rate_bytes_per_s, ns=link.kind.latency_ns
        )
    return drawn


def _latency(made: Graph, a: int, b: int) -> float:
    return float(networkx.shortest_path_length(_drawn(made), a, b, weight="ns"))


@pytest.mark.parametrize(
    "network",
    [
        generators.one_switch(7, HDR),
        generators.fat_tree(48, HDR, radix=8, taper=0.5),
        generators.fat_tree(16, HDR, radix=8),
        generators.rail(64, HDR, HDR, node=4, radix=8),
        generators.dragonfly(72, HDR, radix=8),
        generators.hpn_upn(64, HDR, HDR, domain=8, pod=32),
        fabric.network(topology_file.load("gpu24"), HDR),
        fabric.network(topology_file.load("storage16"), HDR),
    ],
    ids=lambda network: network.name,
)
def test_levels_and_graph_agree_on_the_endpoints_and_on_the_latency_of_each_level(
    network: Network,
) -> None:
    made = graph(network)
    assert made.endpoints == network.endpoints
    assert networkx.is_strongly_connected(_drawn(made))
    for index in range(len(network.levels)):
        reached = network.group_size(index) - 1
        if network.level_between(0, reached) != index:
            continue
        path = network.level_path(index)
        assert len(path.links) == path.switches + 1
        farthest = max(
            _latency(made, 0, other)
            for other in range(network.endpoints)
            if other and network.level_between(0, other) == index
        )
        # An endpoint on another rail is farther, and a dragonfly's neighbour may be nearer.
        if "rail" not in network.name and "upn" not in network.name:
            assert farthest == pytest.approx(path.switches * HOP_NS)


def test_the_uplinks_of_each_tier_have_the_rate_that_the_taper_states() -> None:
    network = generators.fat_tree(48, HDR, radix=8, taper=0.5)
    made = graph(network)
    rates: dict[str, float] = {}
    for link in made.links():
        rates[link.kind.name] = rates.get(link.kind.name, 0.0) + link.kind.rate_bytes_per_s
    ports = 48 * network.levels[0].port_bytes_per_s
    assert rates["leaf out"] == rates["leaf in"] == pytest.approx(ports)
    for name in ("spine up", "spine down", "core up", "core down"):
        assert rates[name] == pytest.approx(ports / 2)


def test_gpus_of_one_rail_are_one_switch_apart_and_others_three() -> None:
    made = graph(generators.rail(32, HDR, HDR, node=8, radix=16))
    assert _latency(made, 3, 11) == pytest.approx(HOP_NS)
    without_server = networkx.MultiDiGraph(_drawn(made))
    without_server.remove_nodes_from(range(32, 32 + 4))  # the servers' own switches
    hops = networkx.shortest_path_length(without_server, 3, 12)
    assert hops == 4


def test_a_dual_network_has_two_planes_and_whole_domains() -> None:
    network = generators.hpn_upn(100_000, HDR, HDR)
    assert [level.groups for level in network.levels] == [512, 28, 1, 7]
    assert network.endpoints == 100_352
    assert "100352" in network.notes[0]
    assert network.levels[1].ways == 2
    assert network.level_between(0, 511) == 0
    assert network.level_between(0, 512) == 1
    assert network.level_path(3).switches == 5
    assert network.level_path(3).share == pytest.approx(1 / 15)


def test_a_balanced_dragonfly_has_full_rate_between_its_groups() -> None:
    network = generators.dragonfly(16 * 32 * 513, HDR, radix=64)
    assert [level.groups for level in network.levels] == [16, 32, 513]
    assert network.levels[2].taper == pytest.approx(0.998, abs=0.03)


@given(st.integers(1, 5000), st.sampled_from([4, 8, 16, 64]))
def test_a_fat_tree_has_exactly_the_endpoints_asked_or_names_a_number_that_fits(
    endpoints: int, radix: int
) -> None:
    network = None
    message = ""
    try:
        network = generators.fat_tree(endpoints, HDR, radix=radix)
    except ModelError as error:
        message = str(error)
    if network is None:
        assert str(endpoints) in message
        return
    assert network.endpoints == endpoints
    assert len(network.levels) <= 3


def test_a_ring_of_switches_has_the_taper_of_its_busiest_trunk() -> None:
    network = fabric.network(topology_file.load("storage16"), HDR)
    assert [level.groups for level in network.levels] == [8, 2]
    # Eight hosts of x4 share one x16 trunk.
    assert network.levels[1].taper == pytest.approx(0.5)
    ring = fabric.network(topology_file.load("gpu24"), HDR)
    assert [level.groups for level in ring.levels] == [6, 4]
    assert ring.levels[1].switches == 3
    made = graph(ring)
    assert made.routes[0, 23], "the emulator's routes are kept"


def test_a_path_beyond_the_reach_of_its_medium_is_refused() -> None:
    with pytest.raises(ModelError, match=r"tape reaches 100 m: 200 m was asked: "):
        Cable(_medium(), 200)
    assert Cable(_medium(), 50).length_m == 50


def test_a_list_of_networks_is_split_outside_brackets() -> None:
    assert split("ib-hdr, nvl(72),fat_tree(64,ib-hdr)") == [
        "ib-hdr", "nvl(72)", "fat_tree(64,ib-hdr)",
    ]  # fmt: skip


def test_a_name_on_the_command_line_is_a_profile_a_generator_or_a_file(tmp_path: Path) -> None:
    assert parse("ib-hdr", 8).endpoints == 8
    assert len(parse("ib-hdr", 128).levels) == 2
    made = parse("fat_tree(128,ib-hdr,radix=16,taper=1/2)")
    assert (made.endpoints, made.levels[1].taper) == (128, 0.5)
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\n'
        '[[level]]\nname = "server"\ngroups = 8\nprofile = "ib-hdr"\n'
        '[[level]]\nname = "leaf"\ngroups = 4\nprofile = "ib-hdr"\nrails = true\nnics = 0.5\n'
    )
    mine = parse(str(file))
    assert (mine.name, mine.endpoints, mine.levels[1].ways) == ("mine", 32, 0.5)


def test_a_generated_network_has_all_arguments_in_its_name() -> None:
    for text in ("nvl(8,nvlink4)", "fat_tree(128,roce-400,dac:2,lpo:50,taper=1/2)"):
        made = parse(text)
        assert made.name == text
        assert parse(made.name) == made
    assert parse("nvl").name == parse("nvl()").name == "nvl(72)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ib-hrd", "is 'ib-hdr' meant"),
        ("fat_tre(64)", "is 'fat_tree' meant"),
        ("fat_tree(64,ib-hdr,depth=3)", "no option 'depth': fat_tree has radix, taper, planes"),
        ("fat_tree(64,ib-hdr,taper=x)", "'x' is not a number"),
        ("fat_tree(64,65,ib-hdr)", "one argument too many"),
        ("fat_tree(64,ib-hdr,planes=1.5)", "planes"),
        ("fat_tree(67,ib-hdr,radix=16)", "72 would"),
        ("fat_tree(100000,ib-hdr)", "give a larger radix"),
        ("rail(80000,ib-hdr,ib-hdr,radix=64)", "join 8192 at most: give a larger radix"),
        ("rail(30,ib-hdr,ib-hdr)", "do not fill servers of 8"),
        ("fat_tree(64,ib-hdr", "brackets"),
        ("none/such.toml", "No such file"),
        ("notes.md/x.csv", "No such file"),
        ("IB-HRD", "no network 'IB-HRD': is 'ib-hdr' meant?"),
        ("lpo", "it is the profile of a medium"),
        ("h100", "it is the profile of a processor"),
        ("", "no network '': give a profile"),
        ("nvl(-3)", "-3 was given: give a number from 0"),
        ("nvl(2.5)", "2.5 was given: give a whole number"),
        ("hpn_upn(1e400)", "1e400 was given: give a number"),
        ("hpn_upn(64,domain=nan)", "nan was given: give a number"),
        ("fat_tree(64,ib-hdr,taper=nan)", "nan was given: give a number"),
        ("fat_tree(64,ib-hdr,dac:-1)", "'dac:-1' is no medium with metres"),
    ],
)
def test_a_wrong_name_is_an_error_that_says_what_to_give(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        [parse(part) for part in split(text)]


def test_a_wrong_level_of_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text('[[level]]\nname = "a"\ngroups = 8\nprofile = "ib-hdr"\nlenght_m = 2\n')
    with pytest.raises(ModelError, match=r"wrong\.toml: .*'a'.*`lenght_m`"):
        parse(str(file))


def test_a_stacked_level_without_more_switches_is_refused() -> None:
    with pytest.raises(ModelError, match="stacked"):
        Network("n", (NetworkLevel("a", 2, HDR), NetworkLevel("b", 2, HDR, 1, stacked=True)))
