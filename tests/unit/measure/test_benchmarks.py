# SPDX-License-Identifier: BSD-3-Clause
"""How benchmarks are taken and reported, with cases that only count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import cases, run, ucx
from benchmarks.case import Bench, Case, at_most
from benchmarks.cases import CASES
from nupa.measure.text import ASCII
from nupa.programs.pair import ProgramError

BENCH = Bench(fabric="f", cpus=(0, 1))


def source(log: list[str], name: str, values: list[float]) -> Callable[[Bench], float]:
    left = iter(values)

    def sample(_: Bench) -> float:
        log.append(name)
        return next(left)

    return sample


def case(
    measure: Callable[[Bench], float], reference: Callable[[Bench], float] | None = None
) -> Case:
    return Case("what", "µs", at_most(2), measure, "floor", reference)


def test_both_sides_take_turns_and_the_median_of_each_counts() -> None:
    log: list[str] = []
    measured = source(log, "measured", [9.0, 1.0, 2.0])
    reference = source(log, "reference", [1.0, 50.0, 2.0])
    row = run.measure(case(measured, reference), BENCH, rounds=3)
    assert log == ["reference", "measured"] * 3
    assert (row.measured, row.reference, row.ratio) == (2.0, 2.0, 1.0)
    assert row.met is True


def test_a_target_that_is_missed_is_a_line_that_says_so() -> None:
    row = run.measure(case(source([], "m", [5.0]), source([], "r", [2.0])), BENCH, rounds=1)
    assert row.met is False
    text = run.render([row], ASCII)
    assert text.splitlines()[-1].split("  ")[-1].strip() == "NOT MET"
    assert "2.50x" in text


def test_a_line_without_a_target_is_neither_met_nor_missed() -> None:
    told = Case("what", "µs", None, source([], "m", [5.0]))
    row = run.measure(told, BENCH, rounds=1)
    assert (row.measured, row.met) == (5.0, None)
    last = run.render([row], ASCII).splitlines()[-1].split()
    assert last == ["what", "5.00", "µs", "-", "-", "-", "-"]


def test_what_takes_long_is_measured_once() -> None:
    long = Case("what", "%", None, source([], "m", [5.0, 6.0]), once=True)
    assert run.measure(long, BENCH, rounds=5).measured == 5.0


def test_a_case_that_fails_is_reported_with_its_reason_and_no_number() -> None:
    def broken(_: Bench) -> float:
        raise ProgramError("perftest is not installed")

    row = run.measure(case(broken), BENCH, rounds=5)
    assert (row.measured, row.met, row.error) == (None, None, "perftest is not installed")
    text = run.render([row], ASCII)
    assert "failed" in text
    assert text.endswith("what: perftest is not installed")


def test_a_case_without_a_reference_has_no_ratio() -> None:
    row = run.measure(case(source([], "m", [0.0])), BENCH, rounds=1)
    assert (row.reference, row.ratio) == (None, None)


@pytest.mark.parametrize(
    ("what", "met", "missed"),
    [
        ("ib_write_lat -s 8", (0.9, 1.0), (0.91, 1.0)),
        ("ib_write_lat -s 8, the line", (0.139, 0.1), (0.141, 0.1)),
        ("ib_send_lat -s 8, am", (0.75, 1.0), (0.76, 1.0)),
        ("ib_send_lat -s 8, tag", (0.89, 1.0), (0.91, 1.0)),
        ("ib_send_lat -s 8, the line", (0.20, 0.07), (0.20, 0.06)),
        ("ib_read_lat -s 8", (0.05, 0.1), (0.051, 0.1)),
        ("ib_atomic_lat", (0.05, 0.1), (0.051, 0.1)),
        ("ib_send_lat -e, round trip", (15.0, 10.0), (15.1, 10.0)),
        ("ib_write_bw -s 8", (20.0, 20.0), (19.9, 20.0)),
        ("ib_write_bw 4 KiB", (8.5, 10.0), (8.4, 10.0)),
        ("ib_write_bw 4 KiB, UCX", (10.0, 10.0), (9.9, 10.0)),
        ("ib_write_bw 4 MiB", (11.0, 0.0), (10.9, 0.0)),
        ("1,024 QPs: WRITE 8 B by turns", (7.0, 10.0), (6.9, 10.0)),
        ("1,024 QPs: resident, each", (16.0, 0.0), (16.1, 0.0)),
        ("QPs made and connected", (10_000.0, 0.0), (9_999.0, 0.0)),
        ("ib_write_lat -s 8 over cma", (1.3, 1.0), (1.31, 1.0)),
        ("ib_write_bw 1 MiB over cma", (9.0, 10.0), (8.9, 10.0)),
        ("ib_send_bw -s 8, am", (36.0, 18.0), (35.9, 18.0)),
        ("ib_send_bw -s 8, tag", (27.0, 18.0), (26.9, 18.0)),
        ("ib_send_lat of 1 MiB", (11.0, 10.0), (11.1, 10.0)),
        ("polls beside registrations of 512 MiB, the worst", (2_000.0, 1.0), (2_001.0, 1.0)),
        ("first WRITE to an untouched 256 MiB", (50.0, 1.0), (50.1, 1.0)),
        ("the same, pages made present", (1.0, 0.0), (2.0, 0.0)),
        ("nupa.verbs: post and poll one", (4.0, 0.0), (4.1, 0.0)),
        ("nupa.verbs: each of 64", (150.0, 0.0), (151.0, 0.0)),
        ("attach of a process", (5.0, 0.0), (5.1, 0.0)),
        ("nupa run -- true", (20.0, 1.0), (20.1, 1.0)),
        ("net: iperf3, one stream", (10.0, 10.0), (9.9, 10.0)),
        ("net: iperf3, beside a TAP loop", (16.0, 20.0), (15.9, 20.0)),
        ("net: TCP round trip of 1 B", (45.0, 30.0), (45.1, 30.0)),
        ("net: UDP datagrams of 64 B", (130.0, 130.0), (129.9, 130.0)),
        ("net: idle, of one CPU", (0.099, 0.0), (0.1, 0.0)),
        ("packets: TLPs, by columns", (0.5, 0.0), (0.49, 0.0)),
        ("capture: ib_send_lat, all levels", (0.32, 0.16), (0.33, 0.16)),
        ("capture: packets to a file", (0.5, 0.0), (0.49, 0.0)),
        ("transactions: write, in C", (2.0, 0.0), (1.99, 0.0)),
        ("transactions: read, in C", (2.0, 0.0), (1.99, 0.0)),
    ],
)
def test_targets_are_those_of_the_issue(
    what: str, met: tuple[float, float], missed: tuple[float, float]
) -> None:
    (found,) = [case for case in CASES if case.what == what]
    assert found.target is not None
    assert found.target.met(*met)
    assert not found.target.met(*missed)


def test_a_fast_send_is_not_enough_where_the_cache_line_is_faster_still() -> None:
    (found,) = [case for case in CASES if case.what == "ib_send_lat -s 8, the line"]
    assert found.target is not None
    assert not found.target.met(0.31, 1.0)
    assert not found.target.met(0.29, 0.09)


def test_quick_takes_fewer_iterations_but_never_none() -> None:
    quick = Bench(fabric="f", cpus=(0, 1), quick=True)
    assert (BENCH.iterations(50_000), quick.iterations(50_000)) == ("50000", "2500")
    assert quick.iterations(5) == "100"


def test_an_unknown_case_is_refused_and_no_round_too(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--only", "no such case"], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            run.parse(argv)
    error = capsys.readouterr().err
    assert "no case has that in its name" in error
    assert "at least 1 is needed" in error


def test_the_raw_reference_is_scaled_to_the_unit_of_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {
        "raw_cacheline": {"one_way_ns": 65.0, "two_lines_ns": 140.0},
        "raw_cma": {"results": [{"ns": 500.0, "gb_per_s": 12.5}], "pingpong_64_ns": 800.0},
        "raw_eventfd": {"round_trip_ns": 9000},
        "raw_memcpy": {"results": [{"gb_per_s": 40.0}]},
        "many_qps": {"one_per_s": 2e7},
    }
    monkeypatch.setattr(cases.raw, "run", lambda name, **_: answers[name])
    references = {
        case.reference_name: case.reference(BENCH)
        for case in CASES
        if case.reference is not None
        and case.reference_name.startswith(
            ("cache", "a line", "process_vm", "writev", "wake", "memcpy", "one QP", "one wake")
        )
    }
    assert references == {
        "cache line, one way": pytest.approx(0.065),
        "a line each way": pytest.approx(0.14),
        "process_vm_writev 64 B": pytest.approx(0.5),
        "writev 64 B, ping-pong": 0.8,
        "wake-up by eventfd": 9.0,
        **{f"memcpy {size}": 40.0 for size in ("4 KiB", "64 KiB", "1 MiB")},
        **{f"process_vm_writev {size}": 12.5 for size in ("64 KiB", "1 MiB")},
        "one QP": pytest.approx(20.0),
        "one wake-up by eventfd": 4.5,
    }


def test_ucx_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ProgramError, match="pip install libucx-cu12"):
        ucx.folder()


def test_what_ucx_prints_without_figures_is_an_error() -> None:
    with pytest.raises(ProgramError, match="no final figures: 'nonsense'"):
        ucx.parse("nonsense")


def test_the_table_is_written_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured: begin -->\nold\n<!-- measured: end -->\nafter\n")
    row = run.measure(case(source([], "m", [3.0]), source([], "r", [2.0])), BENCH, rounds=1)
    run.write_into(page, [row], "1970-01-01: a machine.")
    lines = page.read_text().splitlines()
    assert lines[:3] == ["before", "<!-- measured: begin -->", "1970-01-01: a machine."]
    assert lines[-3] == "| what | 3.00 µs | 2.00 µs | floor | 1.50× | <= 2 x | met |"
    assert lines[-2:] == ["<!-- measured: end -->", "after"]


def test_a_page_without_marks_is_refused_and_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks\n")
    with pytest.raises(ValueError, match=r"page\.md has no lines"):
        run.write_into(page, [], "")
    assert page.read_text() == "no marks\n"


def test_all_of_docs_benchmarks_is_measured_by_these_cases() -> None:
    page = (Path(__file__).parents[3] / "docs/benchmarks.md").read_text()
    _, _, rest = page.partition(run.MARKS[0])
    table = rest.partition(run.MARKS[1])[0]
    lines = [line for line in table.splitlines() if line[:1] == "|"]
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == [case.what for case in CASES]
