# SPDX-License-Identifier: BSD-3-Clause
"""Sweeps: their order, their files, and what is left of one that was killed."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nupa.cli import main
from nupa.model.errors import ModelError
from nupa.model.study import runners
from nupa.model.study import sweep as module
from nupa.model.study.question import predict
from nupa.model.study.sweep import Configuration, SweepRow, configurations, from_table, sweep

ROOT = Path(__file__).parents[4]
SMALL = configurations(["write:8..64", "allreduce:1M"], ["ib-hdr", "roce-100"], [2, 4])


def test_all_combinations_come_in_the_order_of_the_lists() -> None:
    found = configurations(["write:8", "read:8"], ["a", "b"], [2, 4], seed=[1, 2])
    assert len(found) == 2 * 2 * 2 * 2
    assert found[:3] == [
        Configuration("write:8", "a", 2, seed=1),
        Configuration("write:8", "a", 2, seed=2),
        Configuration("write:8", "a", 4, seed=1),
    ]
    assert found == sorted(found, key=lambda each: ["write:8", "read:8"].index(each.work))


def test_a_range_of_sizes_is_many_works() -> None:
    assert [each.work for each in configurations(["write:8..64"], ["ib-hdr"])] == [
        f"write:{size}" for size in (8, 16, 32, 64)
    ]


def test_a_row_is_the_prediction() -> None:
    for row in sweep(SMALL):
        answer = predict(row.work, row.on, row.ranks)
        assert (row.time_ns, row.algorithm, row.engine) == (
            answer.time_ns, answer.algorithm, answer.engine,
        )  # fmt: skip
        assert row.stage_share == pytest.approx(max(answer.shares().values()))


def test_an_impossible_configuration_has_its_reason() -> None:
    (right, wrong) = sweep(configurations(["load:64"], ["cxl-gen6x4", "ib-ndr"]))
    assert right.time_ns
    assert not right.error
    assert wrong.time_ns is None
    assert "ib-ndr has no loads and stores" in wrong.error


@pytest.mark.parametrize("jobs", [1, 2])
def test_processes_give_the_same_rows_in_the_same_order(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "FEW", 0)
    assert sweep(SMALL, jobs=jobs) == [module.solve(each) for each in SMALL]


def test_dask_gives_the_same_rows_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask")
    monkeypatch.setattr(runners, "FEW", 0)
    found = list(runners._by_dask(module.solve, SMALL, 2))
    assert found == [module.solve(each) for each in SMALL]


def test_a_cluster_gives_the_same_rows_in_the_same_order() -> None:
    distributed = pytest.importorskip("dask.distributed")
    options = {"processes": False, "n_workers": 1, "dashboard_address": None}
    with distributed.LocalCluster(threads_per_worker=1, **options) as cluster:
        found = sweep(SMALL, scheduler=cluster.scheduler_address)
    assert found == [module.solve(each) for each in SMALL]


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask.distributed")
    monkeypatch.setattr(runners, "CONNECT_S", 0.1)
    with pytest.raises(ModelError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 "):
        sweep(SMALL, scheduler="tcp://127.0.0.1:1")


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Configuration]:
    """Returns the list of configurations that are computed from now on."""
    seen: list[Configuration] = []
    solve = module.solve

    def watched(one: Configuration) -> SweepRow:
        seen.append(one)
        return solve(one)

    monkeypatch.setattr(module, "solve", watched)
    return seen


def test_a_file_has_a_line_for_each_row(tmp_path: Path) -> None:
    out = tmp_path / "x.csv"
    rows = sweep(SMALL, str(out))
    with out.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["work"] for line in lines] == [row.work for row in rows]
    assert [float(line["time_ns"]) for line in lines] == [row.time_ns for row in rows]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_file_that_was_cut_anywhere_becomes_the_same_file(
    data: st.DataObject, tmp_path: Path
) -> None:
    out = tmp_path / "x.csv"
    out.unlink(missing_ok=True)
    rows = sweep(SMALL, str(out))
    whole = out.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    out.write_bytes(whole[:cut])
    assert sweep(SMALL, str(out)) == rows
    assert out.read_bytes() == whole


def test_rows_that_are_there_are_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "x.csv"
    sweep(SMALL, str(out))
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:4]) + lines[4][:10])
    seen = counted(monkeypatch)
    sweep(SMALL, str(out))
    assert seen == SMALL[3:]


def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    """A process kills itself with SIGKILL in the middle; a second one completes the file."""
    file, out = tmp_path / "sweep.toml", tmp_path / "x.csv"
    file.write_text('work = ["write:8..64", "allreduce:1M"]\non = ["ib-hdr", "roce-100"]\n')
    program = (
        "import os, sys; from nupa.model.study.sweep import sweep\n"
        "def step(done, everything):\n"
        "    if done == int(sys.argv[3]): os.kill(os.getpid(), 9)\n"
        "sweep(sys.argv[1], sys.argv[2], jobs=1, step=step)\n"
    )

    def run(at: int) -> int:
        return subprocess.run(
            [sys.executable, "-c", program, str(file), str(out), str(at)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=50,
        ).returncode

    assert run(5) == -signal.SIGKILL
    partial = out.read_text()
    assert 5 <= partial.count("\n") <= 7
    assert run(-1) == 0
    assert out.read_text().startswith(partial[: partial.rindex("\n") + 1])
    assert out.read_text().count("\n") == 11


@pytest.mark.parametrize("rest", ["nonsense", "work,on\nx,y\n", "\x00\n"])
def test_a_file_that_is_no_result_is_not_overwritten(rest: str, tmp_path: Path) -> None:
    out = tmp_path / "x.csv"
    out.write_text(rest + "\n")
    with pytest.raises(ModelError, match="choose another --out"):
        sweep(SMALL, str(out))
    assert out.read_text() == rest + "\n"


def test_a_file_of_another_sweep_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "x.csv"
    sweep(SMALL, str(out))
    whole = out.read_text()
    with pytest.raises(ModelError, match=r"row 1 is of another sweep \(write:8 on ib-hdr\)"):
        sweep(SMALL[1:], str(out))
    assert out.read_text() == whole


def test_parquet_has_the_same_rows_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "x.parquet"
    rows = sweep(SMALL, str(out))
    assert [SweepRow(**row) for row in parquet.read_table(out).to_pylist()] == rows
    assert [each.name for each in tmp_path.iterdir()] == ["x.parquet"]
    seen = counted(monkeypatch)
    assert sweep(SMALL, str(out)) == rows
    assert seen == []


@pytest.mark.skipif("pyarrow" in sys.modules, reason="pyarrow is installed")
def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModelError, match=r"pip install nupa\[sweep\]"):
        sweep(SMALL, str(tmp_path / "x.parquet"))


def test_a_scheduler_without_dask_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "dask.distributed", None)
    with pytest.raises(ModelError, match=r"pip install nupa\[sweep\]"):
        sweep(SMALL, scheduler="tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"work": "write:8"}, "no on: give a list"),
        ({"on": "ib-hdr"}, "no work: give a list"),
        ({"work": "write:8", "on": "ib-hdr", "rank": 2}, "'rank' is unknown"),
        ({"work": "write:8", "on": "ib-hdr", "ranks": ["2"]}, "ranks has '2': give whole numbers"),
        ({"work": "write:8", "on": "ib-hdr", "ranks": True}, "ranks has True"),
        ({"work": [8], "on": "ib-hdr"}, "work has 8: give texts"),
        ({"work": [], "on": "ib-hdr"}, "a sweep of 0 configurations"),
        ({"work": "wite:8", "on": "ib-hdr"}, "is 'write' meant"),
    ],
)
def test_a_wrong_table_is_an_error_that_names_it(table: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError) as found:
        from_table(table)
    assert message in str(found.value)


@pytest.mark.parametrize("out", ["x.txt", "x", "/none/such/x.csv"])
def test_a_wrong_name_of_the_result_is_an_error(out: str) -> None:
    with pytest.raises(ModelError, match="--out"):
        sweep(SMALL, out)


def command(argv: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["model", "sweep", *argv])
    return code, *capsys.readouterr()


def test_the_command_prints_csv_or_says_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "x.csv"
    file.write_text('work = "write:8..64"\non = ["ib-hdr", "nope"]\nranks = 2\n')
    code, printed, err = command([str(file)], capsys)
    assert (code, err) == (0, "")
    code, said, err = command([str(file), "--out", str(out)], capsys)
    assert (code, err) == (0, "")
    assert out.read_text() == printed
    assert said.startswith(f"{out}: 8 configurations, 4 impossible, ")


def test_a_missing_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["/none/such.toml"], capsys)[::2] == (
        1, "nupa: /none/such.toml: No such file or directory\n",
    )  # fmt: skip
