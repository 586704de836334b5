# SPDX-License-Identifier: BSD-3-Clause
"""Storage: against what others measured, an exact analysis, and the operations' own engine."""

from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nupa.model.answer.answer import Answer
from nupa.model.engine.choice import Engine
from nupa.model.engine.composed import StationDemand, waits
from nupa.model.engine.predict import predict
from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.network.path import Cable
from nupa.model.network.text import parse
from nupa.model.profile.profile import load
from nupa.model.work.storage import Storage, Transport

#: IOPS by depth of one initiator: libiscsi's iSER against tgt, fio with libaio (Google Groups,
#: libiscsi list, thread uzzy3gA9d8E).
ISER = {1: 13270, 2: 24907, 4: 49982, 8: 83195, 16: 113928, 32: 136641, 64: 151519, 128: 158232}

#: CubeFS's own comparison, fio with direct reads of one thread at depth 1 on ConnectX-5, in MB/s:
#: block size, RDMA, TCP; sequential and random.
CUBEFS = ((4096, 35.8, 29.5), (4096, 32.8, 28.5), (131072, 519, 395), (131072, 504, 406))

SIZES = st.integers(512, 4 << 20)
FETCHED = st.integers(8193, 4 << 20)  # above what travels with a command: one message more
MIXES = st.sampled_from(["read", "write", "randrw"])
TRANSPORTS = st.sampled_from(["rdma", "tcp"])


def _pair(fabric: str = "roce-100", endpoints: int = 2) -> Network:
    return Network(fabric, (NetworkLevel("switch", endpoints, load(fabric)),))


def _iops(answer: Answer, work: Storage) -> float:
    return work.outstanding / answer.time_ns * 1e9


def _exact(alone: float, depth: int, demands: list[float]) -> float:
    """Returns the rate of one class by exact mean value analysis (Reiser and Lavenberg, 1980)."""
    think = alone - sum(demands)
    queues = [0.0] * len(demands)
    rate = 0.0
    for count in range(1, depth + 1):
        times = [d * (1 + q) for d, q in zip(demands, queues, strict=True)]
        rate = count / (think + sum(times))
        queues = [rate * time for time in times]
    return rate


@given(
    st.lists(st.floats(1, 100), min_size=1, max_size=4),
    st.floats(0, 1000),
    st.integers(1, 200),
)
@settings(deadline=None)
def test_waits_are_those_of_the_exact_analysis_within_eight_percent(
    demands: list[float], think: float, depth: int
) -> None:
    alone = think + sum(demands)
    found = depth / (alone + sum(waits(alone, depth, [StationDemand("", d) for d in demands])))
    assert found == pytest.approx(_exact(alone, depth, demands), rel=0.08)
    assert found <= min(depth / alone, 1 / max(demands)) * (1 + 1e-9)  # asymptotic bounds


def test_throughput_by_depth_is_that_of_a_measured_iser_target() -> None:
    # The ends of the curve are given, and that both ends have one thread, which its depth fills to
    # 162,000; what lies between must come out.
    alone, core = 1e9 / ISER[1], 1e9 / 162_000
    ends = [StationDemand("initiator", core), StationDemand("target", core)]
    errors = []
    for depth, measured in ISER.items():
        found = depth / (alone + sum(waits(alone, depth, ends))) * 1e9
        errors.append(found / measured - 1)
    assert max(map(abs, errors)) < 0.2
    assert sum(map(abs, errors)) / len(errors) < 0.08


@pytest.mark.parametrize(("size", "rdma", "tcp"), CUBEFS)
def test_tcp_adds_to_a_read_what_cubefs_measured(size: int, rdma: float, tcp: float) -> None:
    measured_us = size / tcp - size / rdma
    times = [predict(Storage(size, transport=each), _pair()).time_ns for each in ("tcp", "rdma")]
    assert (times[0] - times[1]) / 1e3 == pytest.approx(measured_us, rel=0.45)


def _cluster(size: int, depth: int, transport: Transport, jobs: int = 4) -> Answer:
    """Returns the answer for 16 hosts on two switches, each of them client and server."""
    work = Storage(
        size,
        "read",
        depth,
        jobs,
        16,
        16,
        transport,
        converged=True,
    )
    return predict(work, parse("storage16"))


def test_rdma_is_twice_tcp_on_the_storage_cluster() -> None:
    """Clussys reports RDMA = 2 x TCP, and neither block size nor depth: none is fitted to it."""
    ratios = {}
    for size in (4096, 131072, 1 << 20):
        for depth in (1, 16):
            rdma, tcp = _cluster(size, depth, "rdma"), _cluster(size, depth, "tcp")
            assert rdma.bytes == tcp.bytes
            ratios[size, depth] = rdma.algbw_bytes_per_s / tcp.algbw_bytes_per_s
    assert all(1.3 < ratio < 2.7 for ratio in ratios.values()), ratios
    assert exp(sum(map(log, ratios.values())) / len(ratios)) == pytest.approx(2, rel=0.15)
    assert min(abs(ratio / 2 - 1) for ratio in ratios.values()) < 0.11


def test_the_reasons_of_the_ratio_are_stages() -> None:
    # Small blocks: the kernel's path and wake-up.  Large ones: copies, of one core for each stream.
    small, large = _cluster(4096, 1, "tcp"), _cluster(1 << 20, 1, "tcp")
    rdma = _cluster(1 << 20, 16, "rdma")
    assert list(small.shares())[1] == "software"
    assert next(iter(large.shares())) == "copies in the stack"
    assert next(iter(_cluster(1 << 20, 16, "tcp").shares())) == "wait: target's cores"
    assert next(iter(rdma.shares())) == "wait: server's port"
    assert "copies in the stack" not in rdma.shares()


@given(SIZES, MIXES, TRANSPORTS, st.integers(1, 64), st.integers(1, 8), st.integers(1, 8))
@settings(deadline=None, max_examples=60)
def test_more_depth_clients_or_servers_never_lower_the_throughput(
    size: int, rw: str, transport: str, depth: int, clients: int, servers: int
) -> None:
    network = _pair(endpoints=32)

    def rate(**changed: int) -> float:
        numbers = {"iodepth": depth, "clients": clients, "servers": servers} | changed
        work = Storage(size, rw, transport=transport, **numbers)  # type: ignore[arg-type]
        return predict(work, network).algbw_bytes_per_s

    at = rate()
    assert rate(iodepth=depth + 1) >= at * (1 - 1e-9)
    assert rate(clients=clients + 1) >= at * (1 - 1e-9)
    assert rate(servers=servers + 1) >= at * (1 - 1e-9)


@given(FETCHED, FETCHED, MIXES, TRANSPORTS, st.integers(1, 64))
@settings(deadline=None, max_examples=60)
def test_larger_blocks_take_longer_and_faster_links_do_not(
    a: int, b: int, rw: str, transport: str, depth: int
) -> None:
    small, large = sorted((a, b))
    works = [Storage(size, rw, depth, transport=transport) for size in (small, large)]  # type: ignore[arg-type]
    assert predict(works[0], _pair()).time_ns <= predict(works[1], _pair()).time_ns * (1 + 1e-9)
    slow, fast = (predict(works[1], _pair(name)).time_ns for name in ("roce-100", "roce-200"))
    assert fast <= slow * (1 + 1e-9)


@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4),
    st.integers(512, 1 << 20), st.sampled_from([0, 4096, 65536]), MIXES, st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_operations_move_each_block_once(
    clients: int, servers: int, jobs: int, depth: int, size: int, stripe: int, rw: str, same: bool
) -> None:
    work = Storage(size, rw, depth, jobs, clients, servers, stripe=stripe, converged=same, loops=3)
    operations = list(work.operations(_pair(endpoints=9)))
    blocks = work.outstanding * work.loops
    own = sum(one.rank == one.peer for one in operations)
    data = sum(one.bytes for one in operations) - 88 * (blocks * work.pieces - own)
    assert data == (blocks * work.pieces - own) * work.piece_bytes
    assert all(before < index for index, one in enumerate(operations) for before in one.after)
    assert all(one.rank < 9 and one.peer < 9 for one in operations)


@pytest.fixture(params=["flows", "packets"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "packets":
        pytest.importorskip("nupa._model")
    found: Engine = request.param
    return found


@pytest.mark.parametrize("rw", ["read", "write"])
@pytest.mark.parametrize("size", [4096, 131072])
def test_one_block_at_a_time_takes_the_same_in_closed_form_and_message_by_message(
    rw: str, size: int, engine: Engine
) -> None:
    work = Storage(size, rw, loops=8)
    single = predict(work, _pair(), engine).time_ns
    assert single == pytest.approx(predict(work, _pair()).time_ns, rel=0.02)


def test_many_blocks_message_by_message_are_within_the_bounds(engine: Engine) -> None:
    # Drives that take equal times keep the blocks in step: at worst all arrive at once, each time.
    network, loops = _pair(endpoints=5), 16
    work = Storage(131072, "read", 8, 2, 1, 4, loops=loops)
    alone = predict(Storage(131072, "read"), network).time_ns
    port = (131072 + 16) * (4096 + 82) / 4096 / (12.5e9 * 0.995) * 1e9
    most, least = alone + work.outstanding * port, max(alone, work.outstanding * port)
    found = predict(work, network, engine).time_ns / loops
    closed = predict(work, network).time_ns / loops
    assert least * 0.98 <= closed <= found * 1.02
    assert found <= most * 1.02


def test_a_saturated_port_is_the_rate_of_large_reads() -> None:
    work = Storage(1 << 20, "read", 64, 8, 1, 4)
    answer = predict(work, _pair("roce-100", 5))
    payload = 100e9 / 8 * 4096 / (4096 + 82) * 0.995  # RoCE's headers, and the profile's efficiency
    assert answer.algbw_bytes_per_s == pytest.approx(payload, rel=0.02)


def test_energy_is_that_of_the_messages_bits() -> None:
    link = Cable(load("lpo"), 50.0)
    network = Network("lpo", (NetworkLevel("leaf", 2, load("roce-400"), 1, link),))
    reads = Storage(1 << 20, "read", 4)
    answer = predict(reads, network)
    bits = 4 * 8 * (1 << 20) * (4096 + 82) / 4096
    profile, medium = load("roce-400"), load("lpo")["energy"]
    adapters = 2 * profile.get("adapter_energy") + profile.get("switch_energy")
    assert answer.energy_pj == pytest.approx(bits * (2 * medium + adapters), rel=0.01)
    assert answer.messages / answer.time_ns == pytest.approx(4 / answer.time_ns)


def test_stripes_make_one_large_read_faster() -> None:
    plain = Storage(4 << 20, "read", servers=4)
    striped = Storage(4 << 20, "read", servers=4, stripe=1 << 20)
    network = _pair("roce-400", 5)
    assert predict(striped, network).time_ns < predict(plain, network).time_ns


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rw": "raedwrite"}, "rw: 'raedwrite' was given"),
        ({"iodepth": 0}, "iodepth: 0 was given: give 1 or more"),
        ({"rw": "read", "rwmixread": 70}, "rwmixread: read is not mixed"),
        ({"clients": 9}, "roce-100 has 2 endpoints: 9 clients and 1 servers were asked"),
        ({"drive": "h100"}, "h100 is a processor: a drive was asked"),
        ({"transport": "quic"}, "transport: 'quic' was given: give rdma or tcp"),
    ],
)
def test_impossible_storage_is_an_error_that_names_it(
    changed: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        predict(Storage(**changed), _pair())  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_rdma_on_a_network_of_tcp_is_refused() -> None:
    with pytest.raises(ModelError, match="tcp-100g is TCP: transport rdma was asked"):
        predict(Storage(), _pair("tcp-100g"))
    assert predict(Storage(transport="tcp"), _pair("tcp-100g")).time_ns > 0
