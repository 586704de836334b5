# SPDX-License-Identifier: BSD-3-Clause
"""The closed form of one message and of many: stages that were published, and their limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.model.engine.message import interval_ns, message, serialisation_ns, wire_bytes
from nupa.model.engine.predict import predict
from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.profile.profile import load, names
from nupa.model.validate.case import pair
from nupa.model.work.perftest import TX_DEPTH, Perftest

SIZES = st.integers(0, 1 << 30)
FABRICS = st.sampled_from(names("fabric"))


def stages(network: Network, operation: str, size: int) -> dict[str, float]:
    return {stage.name: stage.ns for stage in message(network.level_path(0), operation, size)}


def total(network: Network, operation: str, size: int) -> float:
    return sum(stages(network, operation, size).values())


def test_the_end_of_inline_sends_costs_the_fetch_of_the_payload() -> None:
    network = pair("ib-hdr")
    limit = int(load("ib-hdr")["inline"])
    inline, fetched = (stages(network, "write", limit + more) for more in (0, 1))
    assert "payload fetch" not in inline
    assert fetched["payload fetch"] == load("ib-hdr")["fetch"]


def test_mpi_shakes_hands_above_the_eager_limit() -> None:
    network = pair("slingshot-11")
    assert "rendezvous" not in stages(network, "send", 4096)
    assert stages(network, "send", 4097)["rendezvous"] == load("slingshot-11")["rendezvous"]


def test_headers_at_mtu_1024_leave_the_published_92_6_percent() -> None:
    profile = load("roce-10g")
    size = 1 << 20
    assert size / wire_bytes(profile, size) == pytest.approx(0.926, abs=0.0005)


@pytest.mark.parametrize(("profile", "gbps"), [("cxl-gen5x4", 95), ("cxl-gen6x4", 192)])
def test_flits_of_64_byte_stores_leave_the_computed_rate(profile: str, gbps: float) -> None:
    found = load(profile)
    share = 64 / wire_bytes(found, 64, "store")
    assert share * found["rate"] / 1.25e8 == pytest.approx(gbps, rel=0.005)


@pytest.mark.parametrize(("mps", "gbps"), [(64, 92), (128, 106), (256, 115), (512, 120)])
def test_tlps_leave_the_published_rates(mps: int, gbps: float) -> None:
    found = load("cxl-gen5x4")
    share = mps / (mps + found["header"])
    assert share * found["rate"] / 1.25e8 == pytest.approx(gbps, rel=0.005)


@pytest.mark.parametrize("operation", ["load", "store"])
def test_loads_and_stores_over_a_network_of_messages_are_refused(operation: str) -> None:
    with pytest.raises(ModelError, match=f"ib-hdr has no loads and stores.*{operation} was asked"):
        predict(Perftest(operation, 64), pair("ib-hdr"))


def test_an_answer_over_sockets_passes_the_software_of_both_ends() -> None:
    once = load("tcp-100g")["software"]
    assert stages(pair("tcp-100g"), "send", 8)["software"] == once
    assert stages(pair("tcp-100g"), "read", 8)["software"] == 2 * once


def test_a_load_passes_the_switch_twice_and_a_store_once() -> None:
    network = pair("xconn-a")
    hop = load("xconn-a")["hop"]
    assert stages(network, "load", 64)["switches"] == 2 * hop
    assert stages(network, "store", 64)["switches"] == hop


def test_messages_of_one_packet_are_fetched_one_after_the_other() -> None:
    network = pair("ib-edr")
    profile = load("ib-edr")
    one, two = (interval_ns(network.level_path(0), "send", size, 128) for size in (4096, 8192))
    assert (one.name, one.ns) == ("single rate", 4096 / profile["single_rate"] * 1e9)
    assert (two.name, two.ns) == ("serialisation", serialisation_ns(profile, 8192))


@given(FABRICS, SIZES, SIZES)
def test_a_longer_message_takes_no_less(name: str, a: int, b: int) -> None:
    network = pair(name)
    assert total(network, "write", min(a, b)) <= total(network, "write", max(a, b)) + 1e-6


@given(FABRICS, st.sampled_from(["write", "read", "send"]), SIZES)
def test_the_nominal_time_lies_between_the_best_and_the_worst(
    name: str, operation: str, size: int
) -> None:
    found = predict(Perftest(operation, size), pair(name))
    assert 0 < found.low_ns <= found.time_ns * (1 + 1e-9)
    assert found.time_ns <= found.high_ns * (1 + 1e-9)
    assert sum(stage.ns for stage in found.stages) == pytest.approx(found.time_ns)


@given(FABRICS, st.integers(1, 1 << 24))
def test_no_stream_is_faster_than_the_wire(name: str, size: int) -> None:
    network = pair(name)
    found = predict(Perftest("write", size, in_flight=TX_DEPTH, messages=1000), network)
    rate_per_s = load(name)["rate"] * network.levels[0].ways
    assert found.algbw_bytes_per_s <= rate_per_s * (1 + 1e-9)
