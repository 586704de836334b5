# SPDX-License-Identifier: BSD-3-Clause
"""The algorithm and the protocol are those that NCCL is known to take."""

from __future__ import annotations

import pytest

from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.profile import load
from nupa.model.work.collective import Collective
from nupa.model.work.collectives.choice import estimates
from nupa.model.work.collectives.shape import Shape

MIB = 1 << 20
GIB = 1 << 30


def node(gpus: int, fabric: str) -> Network:
    return Network(fabric, (NetworkLevel("node", gpus, load(fabric)),))


def nodes(count: int, gpus: int, fabric: str, net: str, planes: int = 1) -> Network:
    between = NetworkLevel("net", count, load(net), 3, planes=planes)
    if gpus == 1:
        return Network(net, (between,))
    return Network(f"{fabric} + {net}", (NetworkLevel("node", gpus, load(fabric)), between))


def taken(network: Network, size: int, operation: str = "all-reduce") -> str:
    return Collective(operation, size).plan(network).algorithm


@pytest.mark.parametrize(
    ("fabric", "first"), [("nvlink4", 5), ("nvlink5", 6)], ids=["H200", "B200"]
)
def test_nvls_is_taken_from_as_many_gpus_as_nccl_2_27_took_it(fabric: str, first: int) -> None:
    for gpus in range(4, 9):
        expected = "nvls/Simple" if gpus >= first else "ring/Simple"
        assert taken(node(gpus, fabric), 8 * GIB) == expected, gpus


def test_nodes_of_two_hoppers_take_rings_where_nodes_of_four_reduce_in_the_switch() -> None:
    """Checks NCCL, src/transport/nvls.cc: no NVLS with 2 GPUs of a node, or fewer."""
    assert taken(nodes(10, 2, "nvlink4", "ib-ndr"), 64 * MIB) == "ring/Simple"
    assert taken(nodes(10, 4, "nvlink4", "ib-ndr"), 64 * MIB) == "nvls-tree/Simple"


def test_ampere_has_no_nvls() -> None:
    assert taken(node(8, "nvlink3"), 8 * GIB) == "ring/Simple"


def test_protocols_of_a_ring_follow_each_other_with_the_size() -> None:
    found = [taken(node(8, "nvlink3"), 1 << exponent) for exponent in range(3, 34)]
    order = ["LL", "LL128", "Simple"]
    places = [order.index(each.split("/")[1]) for each in found]
    assert places == sorted(places)
    assert set(places) == {0, 1, 2}


def test_two_nodes_of_a100_change_to_simple_at_1_gib() -> None:
    network = nodes(2, 8, "nvlink3", "roce-100", planes=2)
    assert taken(network, 8) == "tree/LL"
    assert taken(network, 512 * MIB) == "tree/LL128"
    assert taken(network, GIB) == "tree/Simple"


def test_ten_nodes_of_four_h100_change_from_nvls_tree_to_a_ring_at_1_gib() -> None:
    network = nodes(10, 4, "nvlink4", "ib-ndr")
    assert taken(network, 512 * MIB) == "nvls-tree/Simple"
    assert taken(network, GIB) == "ring/Simple"


def test_ten_nodes_of_eight_h100_change_from_nvls_tree_to_a_ring_at_4_gib() -> None:
    network = nodes(10, 8, "nvlink4", "ib-ndr")
    assert taken(network, 2 * GIB) == "nvls-tree/Simple"
    assert taken(network, 4 * GIB) == "ring/Simple"


def test_ll128_is_not_taken_over_slingshot() -> None:
    network = nodes(8, 4, "nvlink3", "slingshot-11")
    assert all("LL128" not in taken(network, 1 << exponent) for exponent in range(3, 31))


def test_pat_is_considered_with_one_rank_a_node_only() -> None:
    net = load("nccl")
    for gpus, known in ((1, True), (8, False)):
        found = estimates(Shape(nodes(16, gpus, "nvlink4", "ib-ndr"), net), "all-gather", MIB)
        assert ("pat" in {each.algorithm for each in found}) is known
    assert taken(nodes(16, 1, "nvlink4", "ib-ndr"), MIB, "all-gather") == "pat/Simple"


def test_collnet_needs_switches_that_reduce() -> None:
    for net, expected in (("ib-ndr", False), ("ib-ndr-sharp", True)):
        shape = Shape(nodes(16, 8, "nvlink4", net), load("nccl"))
        found = {each.algorithm for each in estimates(shape, "all-reduce", 64 * MIB)}
        assert ("collnet" in found) is expected


def test_a_fabric_names_its_own_reduction() -> None:
    assert taken(node(64, "ualink-common-2.0"), GIB) == "ualink/Simple"
    assert taken(node(64, "ualink-200g"), GIB) in ("ring/Simple", "tree/Simple")
    # NCCL's speeds of links are NVLink's: faster stations are no reason against their switches.
    assert taken(node(8, "ualink-common-2.0"), GIB) == "ualink/Simple"


def test_a_broadcast_and_an_exchange_have_one_way() -> None:
    assert taken(node(8, "nvlink4"), GIB, "broadcast") == "ring/Simple"
    assert taken(node(8, "nvlink4"), GIB, "alltoall") == "direct/Simple"


def test_the_reason_names_the_estimate_and_the_next_best() -> None:
    plan = Collective("all-reduce", GIB).plan(node(8, "nvlink4"))
    assert plan.reason.startswith("nccl estimates ")
    assert " us for ring/Simple" in plan.reason


def test_an_override_is_taken_and_named() -> None:
    network = node(8, "nvlink4")
    plan = Collective("all_reduce", GIB, "ring").plan(network)
    assert (plan.algorithm, plan.reason[:14]) == ("ring/Simple", "ring asked for")
    plan = Collective("all-reduce", GIB, "ring", "ll").plan(network)
    assert (plan.algorithm, plan.reason) == ("ring/LL", "ring and LL were asked for")
    plan = Collective("all-reduce", GIB, "halving-doubling").plan(network)
    assert (plan.algorithm, plan.reason) == ("halving-doubling/Simple", "asked for")


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: Collective("all-redcue", 8), "is 'all-reduce' meant"),
        (lambda: Collective("all-reduce", 8, "rign"), "all-reduce has no algorithm 'rign'"),
        (lambda: Collective("all-reduce", 8, protocol="LL64"), "there are LL, LL128, Simple"),
        (lambda: Collective("all-reduce", 0), "give 1 or more bytes"),
        (lambda: Collective("all-to-all", 8, "pat"), "it has direct, ring, hierarchical"),
        (lambda: Collective("all-reduce", 8, library="nvlink4"), "a library was asked"),
    ],
)
def test_a_question_without_an_answer_is_refused(work: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        work()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("work", "network", "message"),
    [
        (Collective("all-reduce", 8), node(1, "nvlink4"), "2 ranks or more"),
        (Collective("all-reduce", 8, "nvls"), node(8, "nvlink3"), "does not reduce"),
        (Collective("all-reduce", 8, "nvls-tree"), node(8, "nvlink4"), "1 nodes of 8 ranks"),
        (Collective("all-reduce", 8, "nvls", "LL"), node(8, "nvlink4"), "Simple only"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_network_that_cannot_do_it_is_named(
    work: Collective, network: Network, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        work.plan(network)


def test_sizes_and_ranks_beyond_the_measurements_have_a_warning() -> None:
    assert not Collective("all-reduce", GIB).plan(node(8, "nvlink4")).warnings
    (warning,) = Collective("all-reduce", 1 << 40).plan(node(8, "nvlink4")).warnings
    assert warning.startswith("nccl: 1 TiB is outside")
