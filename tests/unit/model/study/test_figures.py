# SPDX-License-Identifier: BSD-3-Clause
"""Figures that are replaced: what if a switch took 90 ns, and what each error names."""

from __future__ import annotations

import pytest

from nupa.cli import main
from nupa.model.errors import ModelError
from nupa.model.profile.profile import load
from nupa.model.study.question import predict
from nupa.model.study.sweep import configurations, sweep


def test_a_replaced_figure_enters_the_prediction_without_a_range() -> None:
    hop = load("ib-ndr")["hop"]
    plain = predict("write:8", "ib-ndr")
    found = predict("write:8", "ib-ndr", figures=f"ib-ndr.hop = {hop + 1000:g} ns")
    assert found.time_ns == pytest.approx(plain.time_ns + 1000)
    figures = ";".join(
        f"ib-hdr.{name}={figure.value:.17g}{kind}"
        for name, figure in load("ib-hdr").figures.items()
        if (kind := figure.kind.dimension) in ("ns", "B") and figure.low < figure.high
    )
    assert figures
    narrow = predict("write:8", "ib-hdr", figures=figures)
    wide = predict("write:8", "ib-hdr")
    assert narrow.time_ns == pytest.approx(wide.time_ns)
    assert narrow.high_ns - narrow.low_ns < wide.high_ns - wide.low_ns


def test_figures_are_a_list_of_a_sweep() -> None:
    values = ["", "ib-ndr.hop=90ns", "ib-ndr.hop=300ns;ib-ndr.rate=800Gb/s"]
    rows = sweep(configurations(["write:8"], ["ib-ndr"], figures=values))
    assert [row.asked_figures for row in rows] == values
    assert rows[1].time_ns < rows[0].time_ns < rows[2].time_ns  # type: ignore[operator]


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ("hop=90ns", "write PROFILE.FIGURE=VALUE"),
        ("ib-hdr.hop=90ns", "ib-ndr has no level of ib-hdr: it has ib-ndr"),
        ("ib-ndr.hops=90ns", "ib-ndr has no hops: it has "),
        ("ib-ndr.hop=90", "90 has no unit: give one of ns, us"),
        ("ib-ndr.hop=9..9ns", "is not a number"),
        ("ib-ndr.hop=-1ns", "give numbers"),
        ("ib-ndr.rate=0Gb/s", "give a number above 0"),
    ],
)
def test_a_wrong_figure_is_an_error_that_names_it(figures: str, message: str) -> None:
    with pytest.raises(ModelError) as found:
        predict("write:8", "ib-ndr", figures=figures)
    assert message in str(found.value)
    assert repr(figures) in str(found.value)


def test_the_command_takes_figures(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["predict", "--work", "write:8", "--on", "ib-ndr", "--figures", "ib-ndr.hop=1us"]
    assert main(["model", *argv]) == 0
    assert "1.00 µs  the hops" in capsys.readouterr().out
