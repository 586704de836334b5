# SPDX-License-Identifier: BSD-3-Clause
"""The cost of single calls of `nupa.verbs`, by pytest-benchmark; the last step of `make bench`.

Two hosts in one process.  There are no targets; `--benchmark-compare` compares two versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.python_verbs import End, post_many, post_one
from nupa.fabric import Fabric
from nupa.verbs.device import Context
from nupa.verbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE
from nupa.verbs.mr import MR
from nupa.verbs.pd import PD
from nupa.verbs.wr import SGE, SendWR


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with Fabric(hosts=2) as fabric:
        yield fabric


@pytest.fixture
def here(fabric: Fabric) -> Iterator[End]:
    with ExitStack() as stack:
        here, there = (End(stack, fabric, host) for host in range(2))
        here.connect(there)
        there.connect(here)
        yield here


def write_of_8_bytes(here: End) -> SendWR:
    wr = SendWR(
        opcode=IBV_WR_RDMA_WRITE,
        num_sge=1,
        sg=[SGE(here.mr.buf, 8, here.mr.lkey)],
        send_flags=IBV_SEND_SIGNALED,
    )
    wr.set_wr_rdma(here.peer.mr.rkey, here.peer.mr.buf)
    return wr


def test_post_and_poll_one(benchmark: BenchmarkFixture, here: End) -> None:
    benchmark(post_one(here, write_of_8_bytes(here)))


def test_post_and_poll_a_batch_of_64(benchmark: BenchmarkFixture, here: End) -> None:
    benchmark(post_many(here, write_of_8_bytes(here)))


def test_poll_an_empty_queue(benchmark: BenchmarkFixture, here: End) -> None:
    assert benchmark(here.cq.poll, 1) == (0, [])


def test_register_and_deregister_1_mib(benchmark: BenchmarkFixture, fabric: Fabric) -> None:
    memory = bytearray(1 << 20)
    with Context(fabric=fabric, host=0) as context, PD(context) as pd:
        benchmark(lambda: MR(pd, memory, IBV_ACCESS_LOCAL_WRITE).close())


def test_attach_and_leave(benchmark: BenchmarkFixture, fabric: Fabric) -> None:
    benchmark(lambda: Context(fabric=fabric, host=0).close())
