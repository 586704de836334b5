# SPDX-License-Identifier: BSD-3-Clause
"""Calibration files: their heads, their cases, the errors that a report shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nupa.model.errors import ModelError
from nupa.model.validate import data
from nupa.model.validate.case import CalibrationFile, Case, Line, at_least, everything, pair
from nupa.model.validate.files import FILES
from nupa.model.validate.judge import Judgement, judge, order
from nupa.model.work.perftest import Perftest

MIB = 1 << 20


def with_times(*factors: float, name: str = "perftest-ib-hdr-write-lat") -> Judgement:
    """Judges writes of 1 MiB whose measured time is a factor of the predicted one."""
    predicted = judge(CalibrationFile(name, lambda _: one(1.0), ())).judged[0].predicted_ns

    def read(_: Sequence[Line]) -> Iterator[Case]:
        for factor in factors:
            yield from one(predicted * factor)

    return judge(CalibrationFile(name, read, (everything(0.05),)))


def one(measured_ns: float) -> Iterator[Case]:
    yield Case("write:1M", Perftest("write", MIB), pair("ib-hdr"), measured_ns)


@pytest.mark.parametrize("name", data.names())
def test_each_file_says_its_source_hardware_and_software(name: str) -> None:
    head = data.head(name)
    assert all(head[key] for key in ("kind", "source", "hardware", "software"))
    assert head["kind"] in {"measured", "published", "simulated"}
    assert data.lines(name)


def test_every_calibration_file_is_found_and_has_a_name_of_its_own() -> None:
    files = list((Path(__file__).parents[3] / "nupa" / "model" / "calibration").rglob("*.csv"))
    assert sorted(file.stem for file in files) == data.names()


def test_every_calibration_file_is_judged() -> None:
    assert sorted(file.name for file in FILES) == data.names()


@pytest.mark.timeout(300)  # it simulates millions of packets
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_file_meets_its_bars_or_says_what_is_missing(file: CalibrationFile) -> None:
    verdicts = list(judge(file).verdicts())
    assert not file.missing or not all(verdict.met for verdict in verdicts)
    for verdict in verdicts:
        assert verdict.met or file.missing, (
            f"{verdict.bar.name}: {verdict.error:.1%} of {verdict.bar.limit:.0%}"
        )


def test_an_unknown_file_is_refused_with_the_list() -> None:
    with pytest.raises(ModelError, match=r"no calibration file 'x'.*ib-hdr"):
        data.lines("x")


def test_the_error_is_the_mean_of_the_absolute_relative_errors_of_time() -> None:
    report = with_times(1 / 1.1, 1 / 0.9)
    assert [each.error for each in report.judged] == pytest.approx([0.1, -0.1])
    (verdict,) = report.verdicts()
    assert (verdict.cases, verdict.met) == (2, False)
    assert verdict.error == pytest.approx(0.1)
    assert abs(verdict.worst.error) == pytest.approx(0.1)


def test_a_bar_without_a_case_is_an_error() -> None:
    file = CalibrationFile(
        "perftest-ib-hdr-write-lat", lambda _: one(1.0), (at_least(2 * MIB, 0.05),)
    )
    with pytest.raises(ModelError, match="no case is >= 2 MiB"):
        list(judge(file).verdicts())


def test_pairs_of_networks_that_differ_by_more_than_a_tenth_are_ordered() -> None:
    """NDR is predicted faster than HDR; "again" is slower than both."""
    work = Perftest("write", MIB)

    def report(hdr_ns: float, ndr_ns: float) -> Judgement:
        def read(_: Sequence[Line]) -> Iterator[Case]:
            yield Case("hdr", work, pair("ib-hdr"), hdr_ns)
            yield Case("ndr", work, pair("ib-ndr"), ndr_ns)
            yield Case("again", work, pair("ib-ndr"), ndr_ns * 2)  # the same network: not compared

        return judge(CalibrationFile("perftest-ib-hdr-write-lat", read, ()))

    assert order([report(200.0, 100.0)])[:2] == (1, 1)
    assert order([report(105.0, 100.0)])[:2] == (1, 0)
    assert order([report(100.0, 120.0)])[:2] == (2, 0)
