# SPDX-License-Identifier: BSD-3-Clause
"""`nupa perf allreduce` and others: what may be asked, what is refused, how results are shown."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from nupa.cli import main
from nupa.collectives.rank import RANKS_MAX
from nupa.fabric import Fabric
from nupa.measure import collective
from nupa.measure.collective_model import schedule
from nupa.measure.here import SIZES, Here, write
from nupa.measure.perf import ITERATIONS_MAX, SIZE_MAX_BYTES, PerfError
from nupa.model.engine.replay import network_for
from nupa.model.engine.timeline import Timeline
from nupa.model.profile.profile import load, own_folder
from nupa.programs.fabric import temporary_fabric


def asked(
    monkeypatch: pytest.MonkeyPatch, argv: str
) -> tuple[collective.CollectiveJob, dict[str, Any]]:
    """Returns the job that a command line leads to, and what else `measure` is given."""
    found: list[tuple[collective.CollectiveJob, dict[str, Any]]] = []

    def measure(job: collective.CollectiveJob, **options: Any) -> collective.CollectiveReport:
        found.append((job, options))
        return report(job)

    monkeypatch.setattr(collective, "measure", measure)
    assert main(["perf", *argv.split()]) == 0
    ((job, options),) = found
    return job, options


def report(
    job: collective.CollectiveJob, wrong: int = 0, predicted: float | None = None
) -> collective.CollectiveReport:
    place = {"time_us": 100.0, "wrong": wrong}
    rows = tuple(
        collective.row(
            job, size, count, {"algorithm": "ring", "out_of_place": place, "in_place": place}
        )
        | {"predicted_us": predicted}
        for size, count in job.runs
    )
    return collective.CollectiveReport(job, "f", ("host0", "host1"), rows)


@pytest.mark.parametrize(
    ("argv", "sizes"),
    [
        ("allreduce", [1 << 20]),
        ("allreduce --size 0", [0]),
        ("allgather --size all", [1 << power for power in range(3, 23)]),
        ("barrier", [0]),
        (f"broadcast --size {SIZE_MAX_BYTES} --ranks {RANKS_MAX} --root {RANKS_MAX - 1}",
         [SIZE_MAX_BYTES]),
    ],
)  # fmt: skip
def test_what_is_not_said_has_a_default(
    monkeypatch: pytest.MonkeyPatch, argv: str, sizes: list[int]
) -> None:
    job, options = asked(monkeypatch, argv)
    assert [size for size, _ in job.runs] == sizes
    assert len(options["hosts"]) == job.ranks
    assert (job.type_, job.redop, job.over, job.algorithm) == ("f32", "add", "verbs", None)
    assert collective.from_json(json.dumps(asdict(job))) == job


def test_what_is_said_arrives_at_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    job, options = asked(
        monkeypatch,
        "reducescatter --ranks 3 --size 96 --iterations 7 --type u64 --redop xor --over windows "
        "--algorithm tree --hosts host1,host0",
    )
    assert job == collective.CollectiveJob(
        "reducescatter", 3, ((96, 7),), "u64", "xor", 0, "tree", "windows"
    )
    assert options["hosts"] == ("host1", "host0", "host1")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("allreduce lat", "allreduce has no lat"),
        ("write", "are required: kind (lat or bw)"),
        ("allreduce --depth 3", "--depth is not for allreduce"),
        ("allreduce --qp-type UC", "--qp-type is not for allreduce"),
        ("write lat --ranks 3", "--ranks is not for write"),
        ("write lat --redop min", "--redop is not for write"),
        ("allreduce --ranks 0", "--ranks 0: choose 1 to 64"),
        (f"allreduce --ranks {RANKS_MAX + 1}", "--ranks 65: choose 1 to 64"),
        ("broadcast --root 2", "--root 2: ranks are 0 to 1"),
        ("allreduce --size -1", "--size -1"),
        (f"allreduce --size {SIZE_MAX_BYTES + 1}", "choose 0 to 67108864 bytes"),
        (f"allreduce --iterations {ITERATIONS_MAX + 1}", "choose 1 to 10000000"),
        ("allreduce --redop xor", "are of integers"),
        ("allreduce --algorithm star", "invalid choice: 'star'"),
    ],
)
def test_what_cannot_be_measured_is_a_wrong_command(
    capsys: pytest.CaptureFixture[str], argv: str, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["perf", *argv.split()])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_sizes_and_rates_are_those_of_nccl_tests() -> None:
    job = collective.make_job("allreduce", ranks=4, size=4000)
    (row,) = report(job).results
    assert (row["size_bytes"], row["count"]) == (4000, 1000)
    assert row["in_place"]["algbw_gb_per_s"] == pytest.approx(0.04)  # 4 kB in 100 us
    assert row["in_place"]["busbw_gb_per_s"] == pytest.approx(0.06)
    for operation, factor in (("allgather", 0.75), ("reducescatter", 0.75), ("broadcast", 1)):
        job = collective.make_job(operation, ranks=4, size=4010)  # type: ignore[arg-type]
        (row,) = report(job).results
        # Rounded down to whole elements of all ranks; the count is a rank's share.
        shared = operation != "broadcast"
        assert row["size_bytes"] == (4000 if shared else 4008)
        assert row["count"] == (250 if shared else 1002)
        rate = row["out_of_place"]
        assert rate["busbw_gb_per_s"] == pytest.approx(rate["algbw_gb_per_s"] * factor)


def test_the_table_has_nccl_tests_columns_and_the_models() -> None:
    job = collective.make_job("allreduce", ranks=2, size=1 << 20)
    lines = collective.render(report(job)).splitlines()
    assert " ".join(lines[2].split()) == (
        "# size count type redop root algorithm time algbw busbw #wrong time algbw busbw #wrong"
    )
    assert " ".join(lines[4].split()) == (
        "1048576 262144 float sum -1 ring 100.00 10.49 10.49 0 100.00 10.49 10.49 0"
    )
    assert lines[-2:] == ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 10.49"]
    assert all(len(line) == len(lines[2]) for line in lines[1:5])
    lines = collective.render(report(job, predicted=42.0)).splitlines()
    assert [line.split()[-1] for line in lines[1:5]] == ["model", "time", "(us)", "42.00"]


def test_long_times_have_fewer_decimals_and_stay_in_their_column() -> None:
    times = [collective._time(t) for t in (1.234, 99999.99, 150485.6, 1504856.4, 12345678.0, None)]
    assert times == ["    1.23", "99999.99", "150485.6", " 1504856", "12345678", "       -"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NUPA_MOVER", raising=False)
    load.cache_clear()
    return tmp_path


#: A move of S bytes takes 100 ns + S / 10, and as much from one to the next.
_MOVES = {
    f"{row}{part}": [0.0 if part in (" post", " back") else 100 + size / 10 for size in SIZES]
    for row in ("write", "send", "read")
    for part in ("", " post", " back", " stream")
}


def calibrated(mover: str) -> None:
    figures = {"rate": 10e9, "mtu": 65536.0, "post": 20.0, "completion": 100.0}
    write(Here(f"here-{mover}", "this machine", figures, _MOVES), own_folder())


def test_the_model_predicts_messages_of_the_calibrated_mover(home: Path) -> None:
    assert home
    job = collective.make_job("allreduce", ranks=2, size=1 << 16)
    assert collective.predicted_us(job, 1 << 16, "ring") is None
    calibrated("shared")
    # Two steps of a half each, one after the other.
    half_us = (100 + (1 << 15) / 10) / 1e3
    assert collective.predicted_us(job, 1 << 16, "ring") == pytest.approx(2 * half_us)
    # To rank 0 and back, whole.
    whole_us = (100 + (1 << 16) / 10) / 1e3
    assert collective.predicted_us(job, 1 << 16, "tree") == pytest.approx(2 * whole_us)
    assert collective.predicted_us(job, 1 << 16, "in-network") is None
    windows = collective.make_job("allreduce", ranks=2, size=1 << 16, over="windows")
    assert collective.predicted_us(windows, 1 << 16, "ring") is None
    calibrated("pool")
    assert collective.predicted_us(windows, 1 << 16, "ring") == pytest.approx(2 * half_us)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("operation", collective.COLLECTIVES)
def test_each_rank_sends_what_the_algorithm_sends(
    home: Path, operation: str, algorithm: str, ranks: int
) -> None:
    assert home
    calibrated("shared")
    size = 40 * ranks
    work = schedule(operation, algorithm, ranks, size, root=ranks - 1)
    sent = [sum(step.bytes for step in work.steps if step.rank == r) for r in range(ranks)]
    if algorithm == "ring" and operation in ("allreduce", "reducescatter", "allgather"):
        rounds = 2 * (ranks - 1) if operation == "allreduce" else ranks - 1
        assert sent == [40 * rounds] * ranks
    assert sum(sent) >= (ranks - 1) * (4 if operation == "barrier" else 40)
    timeline = Timeline(work, network_for(work, "here"))
    timeline.run()
    assert min(timeline.arrived) > 0


def test_a_calibrated_machine_has_the_models_column(home: Path, folder: Any) -> None:
    assert home
    del folder
    for mover in ("shared", "cma", "relay"):
        calibrated(mover)
    job = collective.make_job("allreduce", ranks=2, size=1024, iterations=5, algorithm="ring")
    with temporary_fabric("collective") as fabric:
        found = collective.measure(job, fabric=fabric.name, hosts=("host0", "host1"))
    (row,) = found.results
    assert row["predicted_us"] == pytest.approx(2 * (100 + 51.2) / 1e3)
    lines = collective.render(found).splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["model", "time", "(us)"]
    assert lines[4].split()[-1] == "0.30"


def test_wrong_elements_are_said_and_are_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collective, "measure", lambda job, **_: report(job, wrong=3))
    assert main(["perf", "allreduce", "--size", "64"]) == 1
    assert "# Out of bounds values : 6 FAILED" in capsys.readouterr().out


def test_json_has_all_that_the_table_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collective, "measure", lambda job, **_: report(job))
    assert main(["perf", "broadcast", "--root", "1", "--size", "64", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["operation"], found["root"], found["redop"]) == ("broadcast", 1, None)
    (row,) = found["results"]
    assert row["predicted_us"] is None
    assert row["out_of_place"] == row["in_place"]
    assert set(row["in_place"]) == {"time_us", "algbw_gb_per_s", "busbw_gb_per_s", "wrong"}


def test_a_rank_that_cannot_start_is_named(folder: Any) -> None:
    del folder
    job = collective.make_job("barrier", ranks=2)
    with Fabric(hosts=2), pytest.raises(PerfError, match="barrier failed: rank 0 on host0: no fab"):
        collective.measure(job, fabric="nowhere", hosts=("host0", "host1"))
