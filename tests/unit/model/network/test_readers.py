# SPDX-License-Identifier: BSD-3-Clause
"""Networks of other tools' files.  tests/data/model/README.md says where each is from."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.model.errors import ModelError
from nupa.model.network.build import graph
from nupa.model.network.readers import astra_sim, hpcc, htsim, nccl
from nupa.model.network.readers.files import read

DATA = Path(__file__).parents[3] / "data" / "model"
GBPS = 1.25e8

# The format of HPCC's README, written anew: 4 hosts on 2 switches, whose ids come first.
HPCC = """6 2 5
0 1
0 2 100Gbps 0.001ms 0
0 3 100Gbps 1us 0.000
1 4 100Gbps 1000ns 0
1 5 100Gbps 0.001ms 0
0 1 400Gbps 0.002ms 0

First line: total node #, switch node #, link #
"""


def _kinds(made) -> Counter[str]:  # type: ignore[no-untyped-def]
    return Counter(link.kind.name for link in made.links())


def test_simai_rail_topology_has_its_servers_rails_and_spines() -> None:
    network = read(DATA / "simai_rail_16g_h20.txt")
    made = graph(network)
    assert (made.endpoints, made.switches, len(made.source)) == (16, 18, 2 * 96)
    assert _kinds(made) == {"NVSwitch": 32, "host": 32, "switches": 128}
    assert [(level.groups, level.switches) for level in network.levels] == [(8, 1), (2, 1), (1, 3)]
    server, leaf, spine = network.levels
    assert server.port_bytes_per_s == 900 * GBPS
    assert leaf.port_bytes_per_s == 200 * GBPS
    assert leaf.rails
    assert spine.taper == 1.0  # 8 x 400 up a leaf, 2 x 200 down: more than it needs
    assert network.level_path(0).links[0].latency_ns == pytest.approx(25)
    assert sum(link.latency_ns for link in network.level_path(1).links) == pytest.approx(2000)


def test_hpcc_topology_numbers_endpoints_before_switches() -> None:
    network = hpcc.parse(HPCC.encode(), "four.txt", "four")
    made = graph(network)
    assert (made.endpoints, made.switches) == (4, 2)
    assert [(level.groups, level.switches) for level in network.levels] == [(2, 1), (2, 2)]
    assert network.levels[1].taper == 1.0
    links = [(link.source, link.target) for link in made.links()]
    assert (0, 4) in links
    assert (4, 5) in links
    assert network.notes == ("1 lines follow the 5 links of line 1 and are ignored",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("6 2 5", "6 2", "four.txt:1: the first line has 2 words"),
        ("6 2 5", "6 2 9", "four.txt:9: source is 'First'"),
        ("6 2 5", "6 6 5", "four.txt:1: 6 of 6 nodes are switches"),
        ("0 1\n", "0 0\n", "four.txt:2: 2 switches are named, or one twice"),
        ("0 2 100", "0 9 100", "four.txt:3: target is 9: 0 to 5 is possible"),
        ("0 2 100", "2 2 100", "four.txt:3: a link from node 2 to itself"),
        ("100Gbps 1us", "100Gbs 1us", "four.txt:4: rate is '100Gbs'"),
        ("100Gbps 1us", "0Gbps 1us", "four.txt:4: rate is 0"),
        ("1000ns", "-5ns", "four.txt:5: delay is '-5ns'"),
        ("1us 0.000", "1us", "four.txt:4: error rate is missing"),
        ("0 1 400", "0 2 400", "reaches 1 of 3 others"),
    ],
)
def test_a_wrong_line_of_hpcc_is_named_with_its_field(old: str, new: str, message: str) -> None:
    assert old in HPCC
    with pytest.raises(ModelError) as caught:
        hpcc.parse(HPCC.replace(old, new).encode(), "four.txt", "four")
    assert message in str(caught.value)


def test_astra_sim_charges_a_switch_twice() -> None:
    network = read(DATA / "astra_sim_hgx_h100.yml")
    (level,) = network.levels
    assert (level.groups, level.port_bytes_per_s) == (8, 400e9)
    assert sum(link.latency_ns for link in network.level_path(0).links) == 2 * 936.25


def test_astra_sim_dimensions_are_levels_and_a_graph() -> None:
    network = read(DATA / "astra_sim_ring_mesh_switch.yml")
    assert [level.groups for level in network.levels] == [2, 8, 4]
    assert network.endpoints == 64
    assert [level.port_bytes_per_s for level in network.levels] == [200e9, 700e9, 50e9]
    assert [level.switches for level in network.levels] == [0, 0, 1]
    made = graph(network)
    links = _kinds(made)
    assert links == {"NPU": 128, "Ring 0": 64, "FullyConnected 1": 64 * 7, "Switch 2": 128}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topology: [ Ring ]", "npus_count is missing"),
        ("topology: [ Torus ]", "topology[0] is 'Torus': one of Ring"),
        ("topology: [ Ring, Switch ]\nnpus_count: [ 2 ]", "npus_count has 1 entries: 2"),
        ("topology: [Ring]\nnpus_count: [2.5]", "npus_count[0] is 2.5"),
        ("topology: [Ring]\nnpus_count: [2]\nbandwidth: [0]", "bandwidth[0] is '0'"),
        ("topology: [Ring]\nnpus_count: [99999999]", "at most"),
        ("topology: [Ring", "x.yml:1: not YAML"),
        ("- 1", "holds no keys"),
        ("", "holds no keys"),
    ],
)
def test_a_wrong_key_of_astra_sim_is_named(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        astra_sim.parse(text.encode(), "x.yml", "x")
    assert message in str(caught.value)


def test_htsim_leaf_spine_is_oversubscribed_four_times() -> None:
    network = read(DATA / "htsim_leaf_spine_tiny.topo")
    assert [(level.groups, level.switches, level.taper) for level in network.levels] == [
        (8, 1, 1.0), (4, 3, 0.25),
    ]  # fmt: skip
    assert network.levels[0].port_bytes_per_s == 100 * GBPS
    assert sum(link.latency_ns for link in network.level_path(1).links) == 4000
    made = graph(network)
    assert (made.endpoints, made.switches) == (32, 4 + 2)


def test_htsim_fat_tree_has_three_tiers_without_a_taper() -> None:
    network = read(DATA / "htsim_fat_tree_1024.topo")
    assert [(level.groups, level.taper) for level in network.levels] == [
        (8, 1.0), (8, 1.0), (16, 1.0),
    ]  # fmt: skip
    # htsim's own: 12 us round trip over six links of 1 us.
    assert sum(link.latency_ns for link in network.level_path(2).links) == 6000
    assert graph(network).switches == 128 + 128 + 64


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Nodes 32", "Nodes x", "x.topo:1: Nodes is 'x'"),
        ("Podsize 32", "Podsize 30", "x.topo:3: Podsize is 30: groups of 8"),
        ("Tier 1", "Tier 2", "x.topo:13: Tier 2 follows 1 tiers"),
        ("Tiers 2", "Tiers 3", "x.topo:2: Tiers is 3: the file has 2"),
        ("Radix_Up 2", "Radix_Op 2", "x.topo:8: 'Radix_Op' is unknown"),
        ("Downlink_speed_Gbps 100", "Downlink_speed_Gbps 0", "Downlink_speed_Gbps is 0"),
        ("Downlink_Latency_ns 1000", "", "Tier 0: downlink_latency_ns is missing"),
    ],
)
def test_a_wrong_line_of_htsim_is_named(old: str, new: str, message: str) -> None:
    text = (DATA / "htsim_leaf_spine_tiny.topo").read_text()
    assert old in text
    with pytest.raises(ModelError) as caught:
        htsim.parse(text.replace(old, new).encode(), "x.topo", "x")
    assert message in str(caught.value)


def test_rccl_topology_has_its_links_between_gpus() -> None:
    network = read(DATA / "rccl_4p2h_2nic.xml")
    assert network.endpoints == 8
    made = graph(network)
    assert _kinds(made)["xgmi"] == 16  # two a GPU, each named at both ends
    # Two hives of four, each GPU with two links; PCIe joins the hives.
    assert [level.groups for level in network.levels] == [4, 2]
    assert network.levels[0].port_bytes_per_s == 2 * 24e9
    assert network.levels[1].port_bytes_per_s == pytest.approx(16 * 16e9 / 8 * 128 / 130)
    assert network.notes[0] == "GPUs of a server are joined by XGMI (4 each) and PCIe"


def test_rccl_servers_are_joined_by_their_adapters() -> None:
    network = read(DATA / "rccl_4p2h_2nic.xml", ranks=32)
    assert [level.groups for level in network.levels] == [4, 2, 4]
    assert network.levels[2].nics == 0.25
    assert network.levels[2].port_bytes_per_s == pytest.approx(100 * GBPS / 4)
    assert _kinds(graph(network))["network"] == 2 * 2 * 4


NCCL = (
    '<system version="1"><cpu numaid="0"><pci busid="0000:07:00.0" link_speed="16.0 GT/s PCIe" '
    'link_width="16"><gpu dev="0" sm="86" rank="0"/></pci>\n'
    '<pci busid="0000:0a:00.0" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="86"/>'
    '</pci>\n<nic><net name="mlx5_0" speed="200000" latency="1.5"/></nic></cpu></system>'
)


def test_gpus_without_nvlink_are_joined_by_pcie() -> None:
    network = nccl.parse(NCCL.encode(), "x.xml", "x", 4)
    assert network.levels[0].port_bytes_per_s == pytest.approx(16 * 16e9 / 8 * 128 / 130)
    assert network.levels[1].port_bytes_per_s == 200 * GBPS / 2
    assert "PCIe" in network.notes[0]


def _gpus(links: dict[int, str]) -> bytes:
    pci = "".join(
        f'<pci busid="000{gpu}:00:00.0" link_speed="" link_width="0"><gpu dev="{gpu}" sm="90">'
        f"{links[gpu]}</gpu></pci>"
        for gpu in links
    )
    return f'<system version="1"><cpu numaid="0">{pci}</cpu></system>'.encode()


def test_gpus_on_an_nvswitch_are_one_domain_at_the_rate_of_all_links() -> None:
    # A GPU of 8 H100 has 18 links to four switches, which are no GPUs.
    link = '<nvlink target="0000:{}:00.0" count="{}" tclass="0x068000"/>'
    links = "".join(link.format(bus, count) for bus, count in (("d0", 5), ("d1", 4), ("d2", 5),
                                                               ("d3", 4)))  # fmt: skip
    network = nccl.parse(_gpus(dict.fromkeys(range(8), links)), "x.xml", "x")
    assert [level.groups for level in network.levels] == [8]
    assert network.levels[0].profile.name == "nvlink4"
    made = graph(network)
    assert sum(link.kind.rate_bytes_per_s for link in made.links() if link.source == 3) == (
        pytest.approx(18 * 25e9 + 16 * 16e9 / 8 * 128 / 130)
    )


def test_gpus_whose_nvlink_joins_pairs_are_domains_of_two() -> None:
    # As Azure's NC A100 v4: 12 links to one other GPU, and no speed of PCIe.
    pair = '<nvlink target="000{}:00:00.0" count="12" tclass="0x030200"/>'
    network = nccl.parse(_gpus({gpu: pair.format(gpu ^ 1) for gpu in range(4)}), "x.xml", "x")
    assert [(level.name, level.groups) for level in network.levels] == [
        ("domain", 2),
        ("server", 2),
    ]
    assert network.levels[0].profile["rate"] == 12 * 25e9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<!DOCTYPE a [<!ENTITY b "c">]><system/>', "x.xml:1: a document type"),
        ("<system>" + "<pci>" * 100, "elements deep"),
        ("<system>", "x.xml:1: not XML"),
        ("<topology/>", "x.xml:1: <topology>: NCCL's topology begins with <system>"),
        ("<system/>", "0 elements <gpu>"),
        (NCCL.replace('speed="200000"', 'speed="fast"'), "x.xml:3: <net>: speed is 'fast'"),
        (NCCL.replace(' speed="200000"', ""), "<net>: speed is missing"),
        (NCCL.replace("<net ", "<not "), "no <net>"),
    ],
)
def test_a_wrong_element_of_nccl_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        nccl.parse(text.encode(), "x.xml", "x", 4)
    assert message in str(caught.value)


FILES = {
    hpcc.parse: HPCC.encode(),
    htsim.parse: (DATA / "htsim_leaf_spine_tiny.topo").read_bytes(),
    astra_sim.parse: (DATA / "astra_sim_ring_mesh_switch.yml").read_bytes(),
    nccl.parse: NCCL.encode(),
}


@pytest.mark.parametrize("parse", FILES, ids=lambda parse: parse.__module__)
@given(data=st.data())
def test_a_damaged_file_is_a_network_or_an_error_of_the_model(parse, data) -> None:  # type: ignore[no-untyped-def]
    whole = FILES[parse]
    at = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, 12))
    junk = data.draw(st.one_of(st.binary(max_size=6), st.sampled_from([b"0", b"-1", b"9" * 3])))
    try:
        network = parse(whole[:at] + junk + whole[at + length :], "x", "x")
    except ModelError:
        return
    assert network.endpoints >= 1


def test_a_file_of_unknown_kind_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a,b")
    with pytest.raises(ModelError, match=r"suffix .\.csv. is unknown"):
        read(file)
    with pytest.raises(ModelError, match="No such file"):
        read(tmp_path / "none.topo")
