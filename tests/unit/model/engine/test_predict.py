# SPDX-License-Identifier: BSD-3-Clause
"""predict: the engine that it chooses and why, the check by packets, seeds, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nupa.model.answer.answer import Answer
from nupa.model.engine import choice
from nupa.model.engine.predict import predict
from nupa.model.errors import ModelError
from nupa.model.network import text as networks
from nupa.model.network.network import Network
from nupa.model.profile.profile import names
from nupa.model.work import text as works
from nupa.model.work.phase import Plan, RankOperation

built = pytest.mark.skipif(find_spec("nupa._model") is None, reason="no packet engine is built")


@dataclass(frozen=True)
class Incast:
    """All ranks but the first send to it at once: operations without phases."""

    bytes: int
    name: str = "incast"

    def plan(self, network: Network) -> Plan:
        return Plan((), "incast", "a test", self.bytes, network.endpoints)

    def operations(self, network: Network) -> Iterator[RankOperation]:
        for rank in range(1, network.endpoints):
            yield RankOperation(rank, 0, self.bytes, "write")


class Nothing(Incast):
    def operations(self, network: Network) -> Iterator[RankOperation]:
        last = network.endpoints - 1
        yield RankOperation(last, last, 0, "compute")


def answer(work: str, on: str, ranks: int = 8, **options: object) -> Answer:
    return predict(works.parse(work), networks.parse(on, ranks), **options)  # type: ignore[arg-type]


def test_auto_takes_the_closed_form_where_no_link_is_shared() -> None:
    found = answer("allreduce:1M", "ib-ndr")
    assert (found.engine, found.engine_reason) == ("stages", "no two messages share a link")


def test_auto_takes_flows_where_equal_transfers_share_links() -> None:
    found = answer("allreduce:1G", "fat_tree(256,roce-400,taper=0.25)")
    assert found.engine == "flows"
    assert found.engine_reason.startswith("transfers share leaf out")


def test_the_closed_form_says_that_it_has_the_tapers() -> None:
    found = answer("alltoall:1G", "fat_tree(256,roce-400,taper=0.25)")
    assert (found.engine, "tapers" in found.engine_reason) == ("stages", True)


@built
def test_auto_takes_packets_where_irregular_operations_share_links() -> None:
    found = predict(Incast(1 << 16), networks.parse("ib-ndr", 8))
    assert found.engine == "packets"
    assert "so each packet is run" in found.engine_reason
    assert sum(stage.ns for stage in found.stages) == pytest.approx(found.time_ns)


def test_auto_takes_flows_for_more_packets_than_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "PACKET_HOPS_MAX", 10)
    found = predict(Incast(1 << 16), networks.parse("ib-ndr", 8))
    assert found.engine == "flows"
    assert "too many for the packet engine" in found.engine_reason


def test_flows_alone_serve_where_operations_do_not_meet() -> None:
    found = predict(Incast(1 << 16), networks.parse("ib-ndr", 2))
    assert found.engine == "flows"
    assert "less than 5%" in found.engine_reason


@built
@pytest.mark.parametrize(
    ("work", "on"),
    [
        ("write:8", "ib-hdr"),
        ("read:64K", "roce-100"),
        ("load:64", "cxl-gen6x4"),
        ("write-bw:64K", "ib-hdr"),
        ("allreduce:64M,algorithm=ring", "ib-ndr"),
        ("alltoall:64M", "fat_tree(64,roce-400)"),
        ("allgather:16M,algorithm=direct", "ualink-200g"),
        ("broadcast:16M", "ib-ndr"),
        ("allreduce:16M,algorithm=halving-doubling", "roce-400"),
        ("allgather:16M,algorithm=pat", "ib-ndr"),
    ],
)
def test_a_check_finds_the_same_time_packet_by_packet(work: str, on: str) -> None:
    found = answer(work, on, 2 if "all" not in work else 8, check=True)
    assert found.check is not None
    assert abs(found.check.gap) < 0.02, found.check
    assert found.seed == 1


def test_packets_refuse_operations_of_switches_and_name_what_runs_them() -> None:
    wanted = "reduce: the packet engine has no switches that compute: take another engine"
    with pytest.raises(ModelError, match=wanted):
        answer("allreduce:1G,algorithm=nvls", "nvlink4", engine="packets")
    found = answer("allreduce:1G,algorithm=nvls", "nvlink4", check=True)
    assert found.check is None
    assert any("no check" in each and wanted in each for each in found.warnings)


def test_a_check_that_cannot_be_is_a_warning_with_its_reason() -> None:
    found = answer("write-bw:8", "ib-hdr", 2, check=True)
    assert found.check is None
    assert any("no check" in each and "message rate" in each for each in found.warnings)


@built
@settings(max_examples=10, deadline=None)
@given(st.integers(0, (1 << 64) - 1))
def test_the_same_seed_gives_the_same_answer(seed: int) -> None:
    network = networks.parse("fat_tree(16,roce-400,radix=8)")
    first, second = (
        predict(Incast(1 << 14), network, "packets", seed=seed, spans=True) for _ in range(2)
    )
    assert first == second
    assert first.seed == seed


def test_each_engine_that_is_asked_for_is_taken() -> None:
    for engine in ("stages", "flows"):
        assert answer("allreduce:1M", "ib-ndr", engine=engine).engine == engine
    with pytest.raises(ModelError, match="no engine 'fast': there are auto, stages"):
        answer("allreduce:1M", "ib-ndr", engine="fast")
    with pytest.raises(ModelError, match="incast has no closed form"):
        predict(Incast(8), networks.parse("ib-ndr", 8), "stages")


def test_more_operations_than_fit_are_refused_at_once() -> None:
    with pytest.raises(ModelError, match="more than 4000000 operations: the packet engine is for"):
        answer("alltoall:1G", "hpn_upn(100000)", 0, engine="packets")


@built
def test_a_work_of_100000_ranks_is_checked_by_a_part_of_it() -> None:
    found = answer("allreduce:1G,algorithm=ring", "hpn_upn(100000)", 0, check=True)
    assert found.check is not None
    assert "ranks" in found.check.sample


def test_a_work_that_takes_no_time_is_an_error_that_names_it() -> None:
    with pytest.raises(ModelError, match=r"incast on ib-ndr: .* found a time of 0 ns"):
        predict(Nothing(8), networks.parse("ib-ndr", 8))


@pytest.mark.parametrize(
    ("work", "on", "ranks", "message"),
    [
        ("allreduce:1M", "nvl(1000)", 0, "domain"),
        ("load:64", "ib-ndr", 2, "no loads and stores"),
        ("allreduce:1M,algorithm=nvls", "ib-ndr", 8, "does not reduce in its switches"),
        ("allreduce:1M", "ib-ndr", 1, "1"),
        ("write:8", "ib-ndr", 1, "ib-ndr has 1 endpoint: write:8 is between two"),
    ],
)
def test_an_impossible_question_is_an_error_that_names_it(
    work: str, on: str, ranks: int, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        answer(work, on, ranks)


def test_a_medium_at_its_nominal_reach_has_a_range_of_times() -> None:
    found = answer("write:8", "fat_tree(1024,ib-ndr,dac:2,lpo:50)", 0)
    assert found.low_ns < found.time_ns < found.high_ns


def test_a_warning_of_several_levels_is_given_once() -> None:
    found = answer("allreduce:1G", "fat_tree(1024,roce-400)", 0)
    assert len(found.warnings) == len(set(found.warnings))


@built
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(names("fabric")),
    st.sampled_from(["write", "read", "send", "atomic", "load", "store"]),
    st.integers(1, 1 << 20),
)
def test_a_message_alone_takes_by_packets_what_its_stages_take(
    fabric: str, operation: str, size: int
) -> None:
    try:
        closed = answer(f"{operation}:{size}", fabric, 2, engine="stages")
    except ModelError:
        return  # no loads and stores
    packets = answer(f"{operation}:{size}", fabric, 2, engine="packets")
    # A request is a packet of its own: some ns of a slow port.
    assert packets.time_ns == pytest.approx(closed.time_ns, rel=0.025, abs=30)
    assert packets.low_ns == pytest.approx(closed.low_ns, rel=0.05, abs=30)


def test_stores_are_lines_on_the_wire_in_the_closed_form() -> None:
    found = answer("store:1M", "cxl-gen5x4", 2)
    profile = networks.parse("cxl-gen5x4", 2).levels[0].profile
    line = profile["line"] / (profile["line"] + profile["line_header"])
    limit = profile["rate"] * profile["efficiency"] * line
    assert 0.98 * limit < found.algbw_bytes_per_s < limit


def test_a_stream_of_tcp_reaches_its_flow_rate_at_most() -> None:
    profile = networks.parse("tcp-100g", 2).levels[0].profile
    for engine in ("stages", "flows"):
        found = answer("send:64M", "tcp-100g", 2, engine=engine)
        assert 0.98 * profile["flow_rate"] < found.algbw_bytes_per_s <= profile["flow_rate"]
