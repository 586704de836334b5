# SPDX-License-Identifier: BSD-3-Clause
"""How a demo's results are shown; the numbers are made up, and round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nupa.model
from nupa.measure import elsewhere, plot
from nupa.measure.raw import Tcp
from nupa.measure.results import FileTransfer, Results, render
from nupa.measure.text import ASCII
from nupa.measure.versus import RateComparison
from nupa.programs import fio
from nupa.programs.perftest import Bandwidth, Latency

SHA = "ab" * 32


def results(**changes: object) -> Results:
    made = Results(hosts=("host0", "host1"), mover="cma", elapsed_s=12.3)
    for size in (2, 4, 65536):
        made.latency.setdefault("send", []).append(Latency(size, 100, 0.5, 0.4, 0.6, 0.9))
        made.latency.setdefault("read", []).append(Latency(size, 100, 2.0, 1.9, 2.1, 3.0))
        made.bandwidth.setdefault("write", []).append(Bandwidth(size, 100, 0.0, 8e9, 1e6))
        made.tcp.append(Tcp(size, blocking_us=50.0, polling_us=4.0, bytes_per_s=2e9))
    made.transfers.append(FileTransfer("write", 1 << 26, 0.01, SHA, SHA))
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def shown(made: Results) -> str:
    return render(made, glyphs=ASCII)


def row(text: str, first: str, nth: int = 0) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith(first + " ")]
    return lines[nth].split()


def test_the_table_has_each_operation_beside_tcp_and_the_ratio() -> None:
    text = shown(results())
    assert "SEND  READ  TCP, polling  TCP, asleep  TCP/SEND" in text
    assert row(text, "2 B") == ["2", "B", "0.500", "2.00", "4.00", "50.0", "8.00x"]
    assert row(text, "64 KiB", nth=1) == ["64", "KiB", "8.00", "2.00", "4.00x"]


def test_each_size_is_a_line_of_both_tables_and_of_both_charts() -> None:
    lines = shown(results()).splitlines()
    assert sum(line.startswith("4 B ") for line in lines) == 2
    assert sum(line.startswith("     4 B  ") for line in lines) == 2


def test_the_ratio_is_against_the_better_of_both_ways_to_wait_for_tcp() -> None:
    tcp = [Tcp(2, blocking_us=3.0, polling_us=4.0, bytes_per_s=2e9)]
    assert row(shown(results(tcp=tcp)), "2 B")[-1] == "6.00x"


def test_the_file_is_shown_with_what_both_sides_hashed_and_its_speed() -> None:
    text = shown(results())
    assert row(text, "WRITE") == ["WRITE", "64", "MiB", "6.71", SHA[:16], SHA[:16], "same"]
    assert "All worked: host0 and host1, mover cma, 12.3 s." in text


def test_damaged_data_is_a_failure_even_if_all_steps_ended_well() -> None:
    made = results(transfers=[FileTransfer("read", 4096, 0.01, SHA, "cd" * 32)])
    assert not made.ok
    assert "DIFFERENT" in shown(made)
    assert "Data damaged by READ" in shown(made)


def test_a_failed_step_is_named_and_what_was_measured_is_still_shown() -> None:
    made = results(failures=["ib_read_lat: `ib_read_lat` ended with 1"])
    assert not made.ok
    text = shown(made)
    assert "FAILED: ib_read_lat: `ib_read_lat` ended with 1" in text
    assert "NOT all worked (host0 and host1, mover cma, 12.3 s): 1 steps failed." in text
    assert row(text, "2 B")[2] == "0.500"


def test_without_tcp_there_are_tables_and_neither_ratio_nor_chart() -> None:
    text = shown(results(tcp=[]))
    assert row(text, "2 B") == ["2", "B", "0.500", "2.00"]
    assert "TCP on loopback" not in text


def test_without_perftest_there_are_the_files_and_the_note() -> None:
    text = shown(results(latency={}, bandwidth={}, notes=["perftest is not installed"]))
    assert "note: perftest is not installed" in text
    assert "WRITE" in text
    assert "Latency" not in text


def test_json_has_every_size_and_the_verdict() -> None:
    values = json.loads(json.dumps(results().to_json()))
    assert values["ok"] is True
    assert values["transfers"][0]["intact"] is True
    assert [line["size_bytes"] for line in values["latency"]["send"]] == [2, 4, 65536]
    assert values["tcp"][0] == {
        "size_bytes": 2,
        "blocking_us": 50.0,
        "polling_us": 4.0,
        "bytes_per_s": 2e9,
    }


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_picture_is_drawn_in_the_format_that_the_name_says(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"demo{suffix}"
    plot.check(path)
    plot.draw(results(), path)
    start = {".png": b"\x89PNG", ".svg": b"<?xml"}[suffix]
    assert path.read_bytes().startswith(start)


def test_a_format_that_cannot_be_drawn_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(plot.PlotError, match=r"'\.xyz' was given, one of .*\.png"):
        plot.check(tmp_path / "demo.xyz")
    with pytest.raises(plot.PlotError, match="there is no directory"):
        plot.check(tmp_path / "missing" / "demo.png")


def test_without_matplotlib_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(plot.PlotError, match=r"pip install 'nupa\[plot\]'"):
        plot.check(tmp_path / "demo.png")


def contest(block_bytes: int, depth: int, rdma: float, tcp: float) -> RateComparison:
    """Rates in thousand operations a second."""
    rates = [fio.Rate(k * 1e3, k * 1e3 * block_bytes, 1.0, 2.0, 0.6) for k in (rdma, tcp)]
    return RateComparison(block_bytes, depth, *rates)


CONTESTS = [
    contest(4096, 1, 1000.0, 200.0),
    contest(4096, 32, 2000.0, 250.0),
    contest(1 << 20, 1, 20.0, 2.0),
    contest(1 << 20, 32, 12.0, 2.0),
]


def test_fios_rates_stand_beside_each_other_and_the_least_ratios_are_said() -> None:
    text = shown(results(contests=CONTESTS))
    assert "block  depth  RDMA kIOPS  TCP kIOPS  RDMA GB/s  TCP GB/s  RDMA/TCP" in text
    assert row(text, "4 KiB") == ["4", "KiB", "1", "1000", "200", "4.10", "0.819", "5.00x"]
    assert row(text, "1 MiB", nth=1)[2:5] == ["32", "12.0", "2.00"]
    assert "RDMA reaches 5.00x TCP in IOPS at 4 KiB and 6.00x TCP in bandwidth at 1 MiB." in text


def test_each_depth_of_fio_has_a_chart_of_its_blocks_against_the_fabrics_own_tcp() -> None:
    lines = shown(results(contests=CONTESTS)).splitlines()
    assert sum("32 outstanding, GB/s" in line for line in lines) == 1
    assert sum(line.startswith("   4 KiB  ") for line in lines) == 2
    assert sum("T TCP over nupa_net0" in line for line in lines) == 2


def test_fios_figures_are_in_the_json_with_their_ratio() -> None:
    found = json.loads(json.dumps(results(contests=CONTESTS).to_json()))["contests"]
    assert [(row["block_bytes"], row["depth"], row["ratio"]) for row in found] == [
        (4096, 1, 5.0),
        (4096, 32, 8.0),
        (1 << 20, 1, 10.0),
        (1 << 20, 32, 6.0),
    ]
    assert found[0]["rdma"]["operations_per_s"] == 1e6
    assert found[0]["tcp"]["bytes_per_s"] == 4096 * 2e5


def test_the_last_line_is_what_the_program_would_take_on_three_fabrics() -> None:
    made = results()
    assert len(shown(made).splitlines()[-1]) < 80  # nothing was predicted: the verdict
    made.elsewhere = elsewhere.predict(made.latency)
    line = shown(made).splitlines()[-1]
    assert line.startswith("Elsewhere: ib_send_lat of 2 B, 0.500 µs here, is predicted to take")
    assert len(elsewhere.FABRICS) == 3
    for fabric in elsewhere.FABRICS:
        answer = nupa.model.predict("send:2", fabric)
        low, us, high = (ns / 1e3 for ns in (answer.low_ns, answer.time_ns, answer.high_ns))
        star = "*" if answer.warnings else ""
        assert f" {us:.2f}{star} on {fabric} ({low:.2f} to {high:.2f})" in line
    assert line.endswith("; * has warnings.")
    assert len(json.loads(json.dumps(made.to_json()))["elsewhere"]) == 3


def test_a_write_is_predicted_rather_than_a_send_and_a_file_alone_predicts_nothing() -> None:
    latency = {"send": [Latency(8, 1, 1, 1, 1, 1)], "write": [Latency(8, 1, 1, 1, 1, 1)]}
    assert {at.program for at in elsewhere.predict(latency)} == {"ib_write_lat"}
    own = elsewhere.predict(latency, own_loops=True)
    assert {at.program for at in own} == {"nupa perf write lat"}
    assert elsewhere.predict({"atomic": [Latency(8, 1, 1, 1, 1, 1)]}) == []
