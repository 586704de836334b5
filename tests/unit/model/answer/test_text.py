# SPDX-License-Identifier: BSD-3-Clause
"""Answers as text: the columns that other tools' readers expect, and the explanation."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.model.answer.answer import Answer, LinkLoad, SampleCheck, StageTime
from nupa.model.answer.meaning import MEANINGS, meaning
from nupa.model.answer.text import columns, say_energy, say_ns, text, why
from nupa.model.engine.message import message
from nupa.model.errors import ModelError
from nupa.model.profile.profile import names
from nupa.model.study.question import network_of, predict, works_of
from nupa.model.validate.case import pair


def made(**changes: object) -> Answer:
    """Returns an answer of 10 us, two stages."""
    fields: dict[str, object] = {
        "work": "test:64",
        "network": "a network",
        "ranks": 2,
        "bytes": 64,
        "time_ns": 1e4,
        "low_ns": 9e3,
        "high_ns": 2e4,
        "stages": (StageTime("post", 2.5e3), StageTime("serialisation, net", 7.5e3)),
        "algorithm": "one",
        "reason": "a test",
        "engine": "stages",
        "engine_reason": "a test",
    }
    return Answer(**(fields | changes))  # type: ignore[arg-type]


def answers(work: str, on: str, ranks: int = 0) -> list[Answer]:
    network = network_of(on, ranks)
    return [predict(each, network) for each in works_of(work)]


def test_latency_has_perftests_columns() -> None:
    head, *lines = columns(answers("write:2..1K", "ib-hdr"))
    assert head.split()[:5] == [
        "#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]",
    ]  # fmt: skip
    assert [int(line.split()[0]) for line in lines] == [2**n for n in range(1, 11)]
    for line in lines:
        low, high, typical = map(float, line.split()[2:])
        assert low <= typical <= high


def test_bandwidth_has_perftests_columns_in_its_units() -> None:
    (answer,) = answers("write-bw:64K", "ib-hdr")
    head, line = columns([answer])
    assert re.findall(r"\[(.*?)\]", head) == ["MB/sec", "MB/sec", "Mpps"]
    size, iterations, peak, average, rate = line.split()
    assert (int(size), int(iterations)) == (65536, 1000)
    assert float(average) == pytest.approx(answer.algbw_bytes_per_s / 2**20, rel=1e-4)
    assert float(peak) >= float(average)
    assert float(rate) == pytest.approx(float(average) * 2**20 / 65536 / 1e6, rel=1e-4)


#: nccl-tests' lines: size, count, type, redop, root, then time, algbw, busbw, wrong, twice.
NCCL = re.compile(
    r"\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)"
    + r"\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\w+|N/A)" * 2
)


@pytest.mark.parametrize(
    ("work", "redop", "root", "each_bytes"),
    [
        ("allreduce:1M..1G", "sum", "-1", 4),
        ("alltoall:64M", "none", "-1", 32),
        ("allgather:64M", "none", "-1", 32),
        ("broadcast:1M", "none", "0", 4),
        ("allreduce:1023", "sum", "-1", 1),
    ],
)
def test_collectives_have_nccl_tests_columns(
    work: str, redop: str, root: str, each_bytes: int
) -> None:
    found = answers(work, "nvlink4", 8)
    lines = [line for line in columns(found) if not line.startswith("#")]
    assert len(lines) == len(found)
    for line, answer in zip(lines, found, strict=True):
        match = NCCL.fullmatch(line)
        assert match, line
        assert (int(match[1]), int(match[2])) == (answer.bytes, answer.bytes // each_bytes)
        assert match[3] == ("int8" if each_bytes == 1 else "float")
        assert (match[4], match[5]) == (redop, root)
        assert float(match[6]) == pytest.approx(answer.time_ns / 1e3, abs=0.51)
        assert float(match[8]) == pytest.approx(answer.busbw_bytes_per_s / 1e9, abs=0.006)
    head = [line for line in columns(found) if line.startswith("#")]
    assert len({len(line.rstrip()) for line in head[2:3]} | {len(lines[0])}) == 1
    assert head[-1].startswith("# Avg bus bandwidth    :")


def test_other_work_has_a_time() -> None:
    assert [line.split() for line in columns([made()])][1][:4] == ["64", "10.00", "9.00", "20.00"]


def test_why_has_shares_that_add_up_and_each_reason() -> None:
    answer = made(
        links=(LinkLoad("net out", 8, 2048.0, 0.75),),
        energy_pj=2.5e6,
        warnings=("first", "second"),
        seed=7,
        check=SampleCheck("a part", 1e3, 1.1e3),
    )
    shown = "\n".join(why(answer))
    assert (
        "  75%  serialisation, net    7.50 µs  bytes and headers leave a port at its rate: net"
        in shown
    )
    assert "  25%  post" in shown
    for line in (
        "algorithm one: a test",
        "engine    stages: a test",
        "seed      7",
        "range     9.00 µs to 20.0 µs",
        "energy    2.5 µJ",
        "links     net out: 8 x 2 KiB each, busy for 75% of the time",
        "check     a part, packet by packet: 1.10 µs against 1.00 µs, +10.0%",
        "warning   first",
        "          second",
    ):
        assert f"\n  {line}" in shown, line


def test_small_stages_are_counted_together() -> None:
    small = tuple(StageTime(f"part {index}", 1.0) for index in range(5))
    shown = "\n".join(why(made(stages=(StageTime("post", 9995.0), *small))))
    assert "5 more below 0.5% each" in shown


@pytest.mark.parametrize("fabric", names("fabric"))
@pytest.mark.parametrize("operation", ["write", "send", "read", "atomic", "load", "store"])
def test_each_stage_of_a_message_has_a_meaning(fabric: str, operation: str) -> None:
    try:
        found = message(pair(fabric).level_path(0), operation, 1 << 20)
    except ModelError:
        return  # no loads and stores
    assert all(stage.name in MEANINGS for stage in found)


@pytest.mark.parametrize("work", ["allreduce:8..1G", "alltoall:1M", "broadcast:1M", "barrier"])
@pytest.mark.parametrize("fabric", ["nvlink4", "ib-ndr", "rail(64,nvlink4,ib-ndr,taper=0.5)"])
def test_each_stage_of_a_collective_has_a_meaning(work: str, fabric: str) -> None:
    for answer in answers(work, fabric, 0 if "(" in fabric else 8):
        assert all(meaning(stage.name) for stage in answer.stages), answer.stages
        assert answer.work in text([answer])


@given(st.floats(1e-3, 1e15))
def test_times_are_printed_with_three_digits(ns: float) -> None:
    number, unit = say_ns(ns).split()
    scale = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert float(number) * scale == pytest.approx(ns, rel=0.006)


@given(st.floats(1.0, 1e20))
def test_energies_are_printed_with_three_digits(pico: float) -> None:
    number, unit = say_energy(pico).split()
    scale = {"nJ": 1e3, "µJ": 1e6, "mJ": 1e9, "J": 1e12, "kJ": 1e15, "MJ": 1e18}[unit]
    assert float(number) * scale == pytest.approx(pico, rel=0.006)
