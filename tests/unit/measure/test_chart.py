# SPDX-License-Identifier: BSD-3-Clause
"""Tables and charts from made numbers."""

from __future__ import annotations

import pytest

from nupa.measure import chart, text
from nupa.measure.chart import Chart, Point


def bar_of(line: str) -> tuple[int, int]:
    return line.index("R"), line.index("T")


def drawn(points: list[Point], *, lower_is_better: bool, width: int = 80) -> list[str]:
    made = Chart("t", "µs", points, lower_is_better)
    return chart.render(made, width=width, glyphs=text.ASCII).splitlines()


def test_equal_ratios_have_bars_of_equal_length_on_the_logarithmic_axis() -> None:
    points = [Point(2, 0.1, 1.0), Point(64, 1.0, 10.0), Point(4096, 10.0, 100.0)]
    bars = [bar_of(line) for line in drawn(points, lower_is_better=True, width=92)[1:4]]
    lengths = {tcp - rdma for rdma, tcp in bars}
    assert max(lengths) - min(lengths) <= 1  # rounding to columns
    assert [rdma for rdma, _ in bars] == sorted(rdma for rdma, _ in bars)


def test_the_ratio_says_how_many_times_better_rdma_is_either_way() -> None:
    lower = drawn([Point(8, 2.0, 8.0)], lower_is_better=True)
    higher = drawn([Point(8, 8.0, 2.0)], lower_is_better=False)
    worse = drawn([Point(8, 8.0, 2.0)], lower_is_better=True)
    assert lower[1].endswith(" 4.00x")
    assert higher[1].endswith(" 4.00x")
    assert worse[1].endswith(" 0.250x")


@pytest.mark.parametrize("width", [1, 40, 80, 200])
def test_no_line_is_wider_than_asked_but_for_the_least_width(width: int) -> None:
    points = [Point(2**i, 0.123 * 2**i, 999.0 * 2**i) for i in range(1, 24)]
    shown = chart.render(Chart("t", "µs", points, lower_is_better=True), width=width)
    longest = max(len(line) for line in shown.splitlines()[1:-1])
    assert longest <= max(40, width)
    assert shown.count(text.UNICODE.rdma) == len(points) + 1


def test_values_that_are_all_equal_still_have_an_axis() -> None:
    assert drawn([Point(8, 1.0, 1.0)], lower_is_better=True)[1].endswith(" 1.00x")


def test_a_chart_without_points_is_refused() -> None:
    with pytest.raises(ValueError, match="'t' has no points"):
        drawn([], lower_is_better=True)


def test_an_output_that_is_not_unicode_gets_ascii() -> None:
    assert text.glyphs_for("utf-8") is text.UNICODE
    assert text.glyphs_for("ascii") is text.ASCII
    assert text.glyphs_for(None) is text.ASCII


def test_columns_of_a_table_line_up() -> None:
    lines = text.table(["size", "µs"], [["8 B", "0.3"], ["64 KiB", "12.25"]]).splitlines()
    assert lines == ["size       µs", "------  -----", "8 B       0.3", "64 KiB  12.25"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (0.00312, "0.0031"),
        (0.3141, "0.314"),
        (3.14159, "3.14"),
        (31.4, "31.4"),
        (4567.8, "4568"),
    ],
)
def test_numbers_have_three_digits_that_matter(value: float, expected: str) -> None:
    assert text.format_number(value) == expected
