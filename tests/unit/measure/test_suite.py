# SPDX-License-Identifier: BSD-3-Clause
"""The steps of a demo, with programs that only say what they would have measured."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nupa.base.progress import Progress
from nupa.measure import perf, raw, results, suite, versus
from nupa.measure.suite import FULL, QUICK, DemoPlan, Suite
from nupa.programs import fio, perftest
from nupa.programs.pair import PairResult, ProgramError, ProgramOutcome

LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\
   99% percentile[usec]   99.9% percentile[usec]
 8       100    0.24    9.65    0.27    0.29    0.04    0.41    9.65
"""
BANDWIDTH = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 8          100              0.00               8.00		   1.048576
"""


class Fabric:
    """Stands in for ProgramPair: answers each command, or fails for those named in *broken*."""

    def __init__(self, broken: Sequence[str] = (), looks: int = 1) -> None:
        self.broken = broken
        self.looks = looks
        self.calls: list[tuple[list[str], dict[str, Any]]] = []
        self.jobs: list[tuple[fio.Job, versus.HostPair]] = []

    def pair(self, _server: list[str], client: list[str], **options: Any) -> SimpleNamespace:
        return SimpleNamespace(run=lambda: self.run_pair(client, **options))

    def run_pair(self, client: list[str], **options: Any) -> PairResult:
        self.calls.append((client, options))
        for _ in range(self.looks):
            options["tick"](0.1)
        name = next((word for word in client if word.startswith("ib_")), "transfer")
        if name in self.broken:
            raise ProgramError(f"`{name}` ended with 1")
        if name == "transfer":
            text = json.dumps({"sha256": "ab", "bytes": 8, "seconds": 0.5})
        else:
            text = LATENCY if name.endswith("_lat") else BANDWIDTH
        end = ProgramOutcome(tuple(client), 0, text, "")
        return PairResult(end, end, 0.1)

    def run_job(self, job: fio.Job, pair: versus.HostPair, **options: Any) -> fio.Rate:
        self.jobs.append((job, pair))
        options["tick"](0.1)
        if job.carrier in self.broken:
            raise ProgramError(f"`fio` by {job.carrier} ended with 1")
        factor = 8.0 if job.carrier == "rdma" else 2.0
        return fio.Rate(factor * 1e3, factor * 1e3 * job.block_bytes, 1.0, 2.0, job.seconds)


def tcp(sizes: Sequence[int], **_: object) -> list[raw.Tcp]:
    return [raw.Tcp(size, blocking_us=40.0, polling_us=3.0, bytes_per_s=1e9) for size in sizes]


def run(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    plan: DemoPlan,
    fabric: Fabric,
    *,
    seconds_a_look: float = 0.0,
    missing: Sequence[str] = (),
    mover: str | None = "cma",
    movers: Callable[[], set[str]] = lambda: {"relay"},
    network: Callable[[str], AbstractContextManager[None]] | None = None,
) -> tuple[Suite, str]:
    monkeypatch.setattr(suite, "ProgramPair", fabric.pair)
    monkeypatch.setattr(raw, "tcp", tcp)
    monkeypatch.setattr(perftest, "missing", lambda _: [name for name in missing if name != "fio"])
    monkeypatch.setattr(fio, "missing", lambda: "fio" in missing)
    monkeypatch.setattr(versus, "network", network or (lambda _: nullcontext()))
    monkeypatch.setattr(
        versus,
        "host_pair",
        lambda name, hosts, mover: versus.HostPair(name, hosts, "10.0.0.1", mover),
    )
    monkeypatch.setattr(versus, "run", fabric.run_job)
    out = io.StringIO()
    now = iter(i * seconds_a_look for i in range(1_000_000))
    steps = Suite(
        plan,
        Progress(plan.steps, out),
        fabric="f",
        mover=mover,
        movers=movers,
        cpus=(0, 1),
        directory=tmp_path,
        clock=lambda: next(now),
    )
    steps.run()
    return steps, out.getvalue()


@pytest.mark.parametrize("plan", [FULL, QUICK])
def test_each_step_is_announced_and_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: DemoPlan
) -> None:
    steps, shown = run(monkeypatch, tmp_path, plan, Fabric())
    lines = shown.splitlines()
    assert len(lines) == plan.steps
    assert lines[-1].startswith(f"[{len(lines)}/{len(lines)}]")
    assert steps.results.ok
    assert set(steps.results.latency) == set(plan.latency)
    assert set(steps.results.bandwidth) == set(plan.bandwidth)
    assert [transfer.operation for transfer in steps.results.transfers] == ["write", "read", "send"]
    assert list(tmp_path.iterdir()) == []  # no file is left


def test_all_programs_run_on_the_fabric_that_was_made_with_the_mover_that_was_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fabric = Fabric()
    run(monkeypatch, tmp_path, QUICK, fabric)
    for client, options in fabric.calls:
        assert (options["fabric"], options["mover"], options["cpus"]) == ("f", "cma", (0, 1))
        assert str(options["port"]) in client


def test_the_mover_is_reported_as_seen_where_none_was_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, _ = run(monkeypatch, tmp_path, QUICK, Fabric())
    seen, _ = run(monkeypatch, tmp_path, QUICK, Fabric(), mover=None)
    assert (asked.results.mover, seen.results.mover) == ("cma", "relay")


def test_all_movers_of_all_steps_are_reported_each_as_it_was_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = iter([{"cma"}, {"shared"}, set[str](), *[{"relay"}] * 100])
    plan = replace(QUICK, latency=(), bandwidth=())
    steps, _ = run(
        monkeypatch, tmp_path, plan, Fabric(looks=3), mover=None, movers=lambda: next(answers)
    )
    assert steps.results.mover == "relay, shared"


def test_atomics_have_one_size_and_the_others_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fabric = Fabric()
    run(monkeypatch, tmp_path, FULL, fabric)
    commands = [client for client, _ in fabric.calls]
    sizes = [
        command[command.index("-s") + 1] for command in commands if command[0] == "ib_read_lat"
    ]
    assert sizes == [str(size) for size in FULL.sizes]
    assert sum(command[0] == "ib_atomic_lat" for command in commands) == 1
    assert not any("-s" in command for command in commands if command[0] == "ib_atomic_lat")


def test_large_messages_are_fewer_but_never_too_few_for_a_median() -> None:
    counts = [FULL.iterations("lat", size) for size in FULL.sizes]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (5000, 32)
    assert FULL.iterations("bw", 2) == 100_000
    assert FULL.iterations("bw", 1 << 30) == 32


def test_a_step_that_fails_does_not_stop_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps, _ = run(monkeypatch, tmp_path, FULL, Fabric(broken=["ib_write_lat"]))
    assert steps.results.failures == ["ib_write_lat: `ib_write_lat` ended with 1"]
    assert not steps.results.ok
    assert "read" in steps.results.latency
    assert "write" in steps.results.bandwidth


def test_what_would_start_past_the_time_for_all_is_left_out_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fabric = Fabric()
    steps, shown = run(monkeypatch, tmp_path, QUICK, fabric, seconds_a_look=10.0)
    # Looks after 10 s (TCP), 20 s (fio) and 30 s (its first blocks): 25 s are over.
    assert (len(fabric.jobs), fabric.calls) == (0, [])
    assert len(shown.splitlines()) == QUICK.steps
    assert "is left out: the 25 s for all steps are over" in steps.results.notes[0]
    assert steps.results.ok  # a slow machine is not a failure
    assert all(options["deadline_s"] <= 15 for _, options in fabric.calls)


def test_sizes_measured_before_one_that_failed_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Breaking(Fabric):
        def run_pair(self, client: list[str], **options: Any) -> PairResult:
            self.broken = ["ib_send_lat"] if "4096" in client else []
            return super().run_pair(client, **options)

    steps, _ = run(monkeypatch, tmp_path, QUICK, Breaking())
    assert len(steps.results.latency["send"]) == 1
    assert steps.results.failures == ["ib_send_lat: `ib_send_lat` ended with 1"]


class Perf:
    """Stands in for perf.measure; an operation named in *broken* fails."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.calls: list[tuple[perf.PerfJob, dict[str, Any]]] = []

    def measure(self, job: perf.PerfJob, **options: Any) -> perf.Measured:
        self.calls.append((job, options))
        options["tick"](0.1)
        if job.operation == self.broken:
            raise perf.PerfError(f"{job.operation} failed: host1: ended by SIGKILL")
        ((size, count),) = job.runs
        row = {"size_bytes": size, "iterations": count, "elapsed_s": 1.0}
        row |= {f"latency_{name}_us": 0.5 for name in ("typical", "min", "mean", "p99")}
        row |= {"bandwidth_mb_per_s": 8.0, "message_rate_m_per_s": 1.0}
        return perf.Measured(job, "f", ("host0", "host1"), (0, 1), "cma", (row,))


def test_without_perftest_sizes_are_measured_by_nupa_perf_and_the_table_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fabric, own = Fabric(), Perf()
    monkeypatch.setattr(perf, "measure", own.measure)
    steps, shown = run(monkeypatch, tmp_path, FULL, fabric, missing=["ib_send_lat"])
    assert len(shown.splitlines()) == FULL.steps
    assert not any(client[0].startswith("ib_") for client, _ in fabric.calls)
    assert set(steps.results.latency) == set(FULL.latency)
    assert set(steps.results.bandwidth) == set(FULL.bandwidth)
    assert [row.size_bytes for row in steps.results.latency["read"]] == list(FULL.sizes)
    assert [row.size_bytes for row in steps.results.latency["atomic"]] == [8]
    assert steps.results.bandwidth["write"][0].mean_bytes_per_s == 8e6
    assert steps.results.bandwidth["write"][0].messages_per_s == 1e6
    for job, options in own.calls:
        assert (options["fabric"], options["mover"], options["cpus"]) == ("f", "cma", (0, 1))
        assert options["deadline_s"] <= 15
        assert job.runs[0][1] == FULL.iterations(job.kind, job.runs[0][0])
    text = results.render(steps.results)
    assert "the others one way), by nupa perf" in text
    assert "10^9 bytes), by nupa perf" in text
    (note,) = steps.results.notes
    assert "apt-get install perftest" in note
    assert "ib_send_lat" in note


def test_an_own_measurement_that_fails_does_not_stop_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(perf, "measure", Perf(broken="send").measure)
    steps, _ = run(monkeypatch, tmp_path, QUICK, Fabric(), missing=["ib_send_lat"])
    assert steps.results.failures == ["nupa perf send lat: send failed: host1: ended by SIGKILL"]
    assert "write" in steps.results.bandwidth


@pytest.mark.parametrize("plan", [FULL, QUICK])
def test_fio_takes_each_block_at_each_depth_by_both_carriers_with_nothing_else_between(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: DemoPlan
) -> None:
    fabric = Fabric()
    steps, _ = run(monkeypatch, tmp_path, plan, fabric)
    wanted = [(block, depth) for block in plan.fio_blocks for depth in plan.fio_depths]
    assert [(job.block_bytes, job.depth) for job, _ in fabric.jobs[::2]] == wanted
    for (rdma, pair), (tcp, _) in zip(fabric.jobs[::2], fabric.jobs[1::2], strict=True):
        assert (rdma.carrier, tcp.carrier) == ("rdma", "tcp")
        assert replace(rdma, carrier="tcp") == tcp
        assert rdma.address == pair.address
        assert pair.mover == "cma"
    assert [(found.block_bytes, found.depth) for found in steps.results.contests] == wanted
    assert {found.ratio for found in steps.results.contests} == {4.0}


@pytest.mark.parametrize("plan", [FULL, QUICK])
def test_one_part_alone_runs_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: DemoPlan
) -> None:
    fabric = Fabric()
    steps, shown = run(monkeypatch, tmp_path, plan.only("fio"), fabric)
    assert fabric.calls == []
    assert len(shown.splitlines()) == 1
    assert {found.block_bytes for found in steps.results.contests} >= {4096, 1 << 20}
    fabric = Fabric()
    steps, _ = run(monkeypatch, tmp_path, plan.only("files"), fabric)
    assert (len(fabric.calls), fabric.jobs) == (3, [])
    fabric = Fabric()
    steps, _ = run(monkeypatch, tmp_path, plan.only("sizes"), fabric)
    assert set(steps.results.latency) == set(plan.latency)
    assert (steps.results.transfers, fabric.jobs) == ([], [])


def test_alone_fio_takes_more_blocks_and_depths_than_beside_the_others() -> None:
    alone = FULL.only("fio")
    assert set(alone.fio_blocks) > set(FULL.fio_blocks)
    assert (min(alone.fio_depths), max(alone.fio_depths)) == (1, 32)
    assert (min(alone.fio_blocks), max(alone.fio_blocks)) == (4096, 1 << 20)


def test_without_fio_or_without_a_network_the_demo_goes_on_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def network(_: str) -> AbstractContextManager[None]:
        raise versus.NetworkError("user namespaces are not allowed: be root")

    for options, said in (
        ({"missing": ["fio"]}, "apt-get install fio"),
        ({"network": network}, "user namespaces are not allowed: be root"),
    ):
        fabric = Fabric()
        steps, _ = run(monkeypatch, tmp_path, QUICK, fabric, **options)
        (note,) = steps.results.notes
        assert note.startswith("RDMA is not compared with TCP by fio: ")
        assert said in note
        assert steps.results.ok
        assert (fabric.jobs, steps.results.contests) == ([], [])
        assert "write" in steps.results.bandwidth


def test_a_carrier_that_fails_is_a_failure_of_the_demo_and_the_network_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    down = []

    @contextmanager
    def network(name: str) -> Iterator[None]:
        try:
            yield
        finally:
            down.append(name)

    steps, _ = run(monkeypatch, tmp_path, QUICK, Fabric(broken=["tcp"]), network=network)
    assert steps.results.failures == ["RDMA and TCP by fio: `fio` by tcp ended with 1"]
    assert not steps.results.ok
    assert down == ["f"]
