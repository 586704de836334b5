# SPDX-License-Identifier: BSD-3-Clause
"""perftest's -q and -b: what queue pairs and directions share, by the closed form and by packets.

The time of a stream is that of its second half: the closed form has no start and no end of it.
"""

from __future__ import annotations

import pytest

from nupa.model.answer.answer import Answer
from nupa.model.answer.text import columns
from nupa.model.engine.message import returned_bytes, wire_bytes
from nupa.model.errors import ModelError
from nupa.model.profile.profile import load
from nupa.model.study.question import predict
from nupa.model.validate.case import pair
from nupa.model.work.perftest import QPS_MAX, Perftest

ON = "ib-hdr"


def by_stages(work: str, on: str = ON) -> Answer:
    return predict(work, on, 2, engine="stages")


@pytest.mark.parametrize("on", [ON, "ib-ndr", "roce-400", "uec-800"])
@pytest.mark.parametrize("options", ["qps=4", "bidirectional=true", "qps=3,bidirectional=true"])
@pytest.mark.parametrize("operation", ["write", "read", "send"])
def test_packets_take_what_the_closed_form_takes(operation: str, options: str, on: str) -> None:
    pytest.importorskip("nupa._model")
    for size in (64, 4096, 65536):
        work = f"{operation}-bw:{size},depth=16,{options},messages="
        half, whole = (predict(f"{work}{each}", on, 2, engine="packets") for each in (150, 300))
        closed = by_stages(f"{work}150", on)
        assert whole.time_ns - half.time_ns == pytest.approx(closed.time_ns, rel=0.02)


@pytest.mark.parametrize("on", ["ualink-200g", "xgmi-mi300x"])
def test_a_stream_takes_all_ports_of_an_accelerator(on: str) -> None:
    pytest.importorskip("nupa._model")
    work = "write-bw:64K,depth=128,messages="
    half, whole = (predict(f"{work}{each}", on, 2, engine="packets") for each in (1000, 2000))
    for engine in ("stages", "flows"):
        closed = predict(f"{work}1000", on, 2, engine=engine)
        assert closed.time_ns == pytest.approx(whole.time_ns - half.time_ns, rel=0.02)


def test_queue_pairs_have_a_message_rate_each_and_share_the_port() -> None:
    small, four = by_stages("write-bw:2"), by_stages("write-bw:2,qps=4")
    assert four.time_ns == pytest.approx(small.time_ns)
    assert four.messages == 4 * small.messages
    large, many = by_stages("write-bw:1M"), by_stages("write-bw:1M,qps=4")
    assert many.time_ns == pytest.approx(4 * large.time_ns)


def test_the_most_queue_pairs_are_limited_by_the_wire() -> None:
    found = by_stages(f"write-bw:2,qps={QPS_MAX}")
    profile = load(ON)
    assert found.stages[0].name == "serialisation"
    rate = found.messages / found.time_ns * 1e9
    assert rate * wire_bytes(profile, 2) == pytest.approx(
        profile["rate"] * profile.get("efficiency", 1.0)
    )


def test_one_queue_pair_and_one_direction_are_the_default() -> None:
    assert by_stages("write-bw:64K,qps=1,bidirectional=false") == by_stages("write-bw:64K")


@pytest.mark.parametrize("qps", [-1, 0, QPS_MAX + 1])
def test_numbers_of_queue_pairs_beyond_perftests_are_refused(qps: int) -> None:
    with pytest.raises(ModelError, match=f"qps={qps}: give a number from 1 to {QPS_MAX}"):
        Perftest("write", 8, qps=qps)


def test_acknowledgements_of_the_other_direction_share_the_port() -> None:
    profile = load(ON)
    one, both = by_stages("write-bw:64K"), by_stages("write-bw:64K,bidirectional=true")
    data, back = wire_bytes(profile, 65536), returned_bytes(profile, 65536, "write")
    assert back > 0
    assert both.time_ns / one.time_ns == pytest.approx((data + back) / data)
    assert both.bytes == 2 * one.bytes


def test_both_directions_are_summed_and_iterations_are_those_of_one_end() -> None:
    work = "send-bw:64K,messages=500,qps=2"
    lines = [
        list(columns([by_stages(each)]))[1].split() for each in (work, f"{work},bidirectional=true")
    ]
    (size, iterations, _, rate, messages), sums = lines
    assert sums[:2] == [size, iterations] == ["65536", "1000"]
    assert float(sums[3]) == pytest.approx(2 * float(rate), rel=0.01)
    assert float(sums[4]) == pytest.approx(2 * float(messages), rel=0.01)


def test_both_directions_load_the_links_of_both_ends() -> None:
    one, both = by_stages("write-bw:64K"), by_stages("write-bw:64K,bidirectional=true")
    assert [link.links for link in both.links] == [2 * link.links for link in one.links]
    assert max(link.busy for link in both.links) <= 1


def test_what_was_measured_of_one_queue_pair_is_warned_of() -> None:
    assert any(
        "message rate is of one queue pair" in each
        for each in by_stages("write-bw:2,qps=2").warnings
    )
    assert not any("queue pair" in each for each in by_stages("write-bw:2").warnings)
    assert Perftest("write", 8, qps=2).plan(pair(ON)).warnings
