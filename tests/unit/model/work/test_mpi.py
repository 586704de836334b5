# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of MPI: the rules of MPICH, and whether messages carry what they must."""

from __future__ import annotations

from math import log2

import pytest

from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.profile import load
from nupa.model.study.question import predict
from nupa.model.work.collective import Collective
from nupa.model.work.collectives.rounds import ROUNDS

KIB = 1 << 10
MIB = 1 << 20
EACH = [(of, name) for of, algorithms in ROUNDS.items() for name in algorithms]


def hosts(count: int, fabric: str = "ib-hdr") -> Network:
    return Network(fabric, (NetworkLevel("switch", count, load(fabric), 1),))


def mpich(operation: str, size: int, algorithm: str = "") -> Collective:
    return Collective(operation, size, algorithm, library="mpich")


@pytest.mark.parametrize(
    ("operation", "size", "ranks", "algorithm"),
    [
        ("all-reduce", 8, 2, "recursive-doubling"),
        ("all-reduce", 60, 16, "recursive-doubling"),  # fewer elements of 4 B than ranks
        ("all-reduce", 64, 16, "halving-doubling"),
        ("all-gather", 512 * KIB - 1, 16, "recursive-doubling"),
        ("all-gather", 512 * KIB, 16, "ring"),
        ("all-gather", 80 * KIB - 1, 12, "bruck"),
        ("all-gather", 80 * KIB, 12, "ring"),
        ("reduce-scatter", 512 * KIB - 1, 12, "recursive-halving"),
        ("reduce-scatter", 512 * KIB, 12, "pairwise"),
        ("broadcast", 12287, 64, "binomial"),
        ("broadcast", 12288, 64, "scatter-doubling"),
        ("broadcast", 12288, 63, "scatter-ring"),
        ("broadcast", 512 * KIB, 64, "scatter-ring"),
        ("broadcast", 512 * KIB, 7, "binomial"),
        ("reduce", 2048, 9, "binomial"),
        ("reduce", 4096, 9, "halving-gather"),
        ("reduce", 4096, 1040, "binomial"),
        ("all-to-all", 256 * 8, 8, "bruck"),
        ("all-to-all", 256 * 7, 7, "direct"),
        ("all-to-all", 257 * 8, 8, "direct"),
        ("all-to-all", 32 * KIB * 8, 8, "direct"),
        ("all-to-all", 32 * KIB * 8 + 8, 8, "pairwise"),
        ("barrier", 1, 8, "dissemination"),
        ("send-recv", MIB, 8, "direct"),
    ],
)
def test_mpich_chooses_by_its_default_thresholds(
    operation: str, size: int, ranks: int, algorithm: str
) -> None:
    assert mpich(operation, size).plan(hosts(ranks)).algorithm == algorithm


@pytest.mark.parametrize("ranks", range(2, 19))
@pytest.mark.parametrize(("operation", "algorithm"), EACH)
def test_what_a_rank_has_reaches_those_that_need_it(
    operation: str, algorithm: str, ranks: int
) -> None:
    """A message brings what its sender had when the operations that it waits for had ended."""
    operations = list(mpich(operation, 4096 * ranks, algorithm).operations(hosts(ranks)))
    brought: list[set[int]] = []
    had = [{rank} for rank in range(ranks)]
    for one in operations:
        assert 0 <= one.peer < ranks != one.rank != one.peer
        assert all(earlier < len(brought) for earlier in one.after)
        arrived = [brought[each] for each in one.after if operations[each].peer == one.rank]
        brought.append({one.rank}.union(*arrived))
        for earlier in one.after:  # what came by still earlier operations is known to them
            if operations[earlier].rank == one.rank:
                brought[-1] |= brought[earlier]
        had[one.peer] |= brought[-1]
    everything = set(range(ranks))
    if operation == "reduce":
        assert had[0] == everything
    elif operation == "broadcast":
        assert all(0 in each for each in had)
    elif operation == "send-recv":
        assert all((rank - 1) % ranks in each for rank, each in enumerate(had))
    else:
        assert had == [everything] * ranks


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_ranks_send_the_bytes_of_the_closed_forms(ranks: int) -> None:
    size = 1024 * ranks

    def sent(operation: str, algorithm: str) -> float:
        operations = mpich(operation, size, algorithm).operations(hosts(ranks))
        return sum(one.bytes for one in operations) / ranks

    share = size * (ranks - 1) / ranks
    assert sent("all-reduce", "recursive-doubling") == size * log2(ranks)
    assert sent("all-reduce", "halving-doubling") == 2 * share
    assert sent("all-reduce", "ring") == 2 * share
    assert sent("all-gather", "recursive-doubling") == share
    assert sent("all-gather", "bruck") == share
    assert sent("reduce-scatter", "recursive-halving") == share
    assert sent("all-to-all", "pairwise") == share
    assert sent("all-to-all", "direct") == share
    assert sent("all-to-all", "bruck") == size / 2 * log2(ranks)


@pytest.mark.parametrize(("operation", "algorithm"), EACH)
@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_plans_send_what_their_messages_do(operation: str, algorithm: str, ranks: int) -> None:
    """Of rooted algorithms the plan is the longest path, so that no rank sends more."""
    work = mpich(operation, 1024 * ranks, algorithm)
    of_rank = [0] * ranks
    for one in work.operations(hosts(ranks)):
        of_rank[one.rank] += one.bytes
    planned = sum(
        phase.bytes * phase.steps * phase.peers for phase in work.plan(hosts(ranks)).phases
    )
    if operation in ("broadcast", "reduce"):
        assert planned >= max(of_rank)
    else:
        assert [planned] * ranks == of_rank


@pytest.mark.parametrize(
    "work", ["allreduce:256K", "allgather:256K", "broadcast:256K", "reduce:64K"]
)
def test_the_engines_agree_on_rounds(work: str) -> None:
    by = {
        engine: predict(work, "fat_tree(16,ib-hdr)", library="mpich", engine=engine).time_ns
        for engine in ("stages", "flows", "packets")
    }
    assert by["flows"] == pytest.approx(by["stages"], rel=0.02)
    assert by["packets"] == pytest.approx(by["stages"], rel=0.05)


def test_distances_within_a_node_stay_in_it() -> None:
    network = Network(
        "nodes",
        (
            NetworkLevel("node", 4, load("cxl-gen6x4"), 1),
            NetworkLevel("net", 4, load("ib-hdr"), 1),
        ),
    )
    plan = mpich("all-to-all", MIB * 16, "pairwise").plan(network)
    assert [(phase.level, phase.steps) for phase in plan.phases] == [(0, 3), (1, 12)]
    plan = mpich("all-reduce", MIB, "halving-doubling").plan(network)
    assert [phase.level for phase in plan.phases] == [0, 0, 1, 1, 1, 1, 0, 0]


def test_stages_that_were_measured_with_mpi_have_its_time_once() -> None:
    one = predict("sendrecv:8", "slingshot-11", 2, library="mpich")
    assert one.time_ns == pytest.approx(predict("send:8", "slingshot-11").time_ns)
    other = predict("sendrecv:8", "ib-hdr", 2, library="mpich")
    assert other.time_ns == pytest.approx(predict("send:8", "ib-hdr").time_ns + 250)


def test_sums_and_handshakes_take_the_libraries_time() -> None:
    """Of 1 MiB in a round: 131 us for the sum, and 3 us for the handshake."""
    one = predict("allreduce:1M,algorithm=recursive-doubling", "ib-hdr", 2, library="mpich")
    bare = predict("send:1M", "ib-hdr").time_ns
    assert one.time_ns == pytest.approx(bare + 250 + 3000 + MIB / 8)


def test_more_bytes_never_take_less_time_with_one_algorithm() -> None:
    for operation, algorithm in EACH:
        times = [
            predict(mpich(operation, size * 12, algorithm), hosts(12)).time_ns
            for size in (1, 64, 4096, 65536, MIB)
        ]
        assert times == sorted(times), (operation, algorithm)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "allreduce:1M,algorithm=tree",
            "all-reduce has no algorithm 'tree': it has recursive-doub",
        ),
        ("allreduce:1M,protocol=LL", "mpich has neither protocols nor channels"),
        ("allreduce:1M,channels=4", "mpich has neither protocols nor channels"),
    ],
)
def test_options_of_nccl_are_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        predict(f"{text},library=mpich", "ib-hdr")


def test_algorithms_of_mpi_are_refused_by_nccl() -> None:
    with pytest.raises(ModelError, match="all-reduce has no algorithm 'recursive-doubling'"):
        predict("allreduce:1M,algorithm=recursive-doubling", "ib-hdr")


@pytest.mark.parametrize(
    ("library", "message"),
    [
        ("mpih", "no profile 'mpih': is 'mpich' meant"),
        ("nvme-tcp", "nvme-tcp is a library of no collectives: nccl and mpich are"),
        ("ib-hdr", "ib-hdr is a fabric: a library was asked"),
    ],
)
def test_a_library_that_is_none_is_named(library: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        predict("allreduce:1M", "ib-hdr", library=library)


def test_one_rank_is_refused() -> None:
    with pytest.raises(ModelError, match="mpich: 1 rank: a collective has 2 ranks or more"):
        predict("allreduce:1M", "ib-hdr", 1, library="mpich")


def test_a_message_has_no_library() -> None:
    with pytest.raises(ModelError, match="write:8 has no library to choose: mpich was asked"):
        predict("write:8", "ib-hdr", library="mpich")


def test_a_thousand_ranks_are_predicted_by_few_phases() -> None:
    plan = mpich("all-to-all", 1024 * MIB).plan(hosts(1024))
    assert (plan.algorithm, len(plan.phases)) == ("pairwise", 1)
