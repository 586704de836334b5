# SPDX-License-Identifier: BSD-3-Clause
"""`nupa perf`: what may be asked, what is refused, how results are shown; no process is started."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.cli import main
from nupa.fabric import Fabric
from nupa.measure import perf
from nupa.measure.text import ASCII
from nupa.programs.pair import PairResult, ProgramOutcome

SIZE, DEPTH, ITERATIONS = perf.SIZE_MAX_BYTES, perf.DEPTH_MAX, perf.ITERATIONS_MAX


@pytest.mark.parametrize(
    ("argv", "runs", "depth"),
    [
        ("write lat", [8], 128),
        ("write bw", [65536], 128),
        ("send bw --qp-type UD", [4096], 128),
        ("atomic bw", [8], 128),
        ("atomic lat --size all", [8], 128),
        (f"write bw --size {SIZE} --depth {DEPTH}", [SIZE], DEPTH),
        ("send lat --size all", [1 << power for power in range(24)], 128),
        ("send lat --size all --qp-type UD", [1 << power for power in range(13)], 128),
    ],
)
def test_what_is_not_said_has_a_default(
    monkeypatch: pytest.MonkeyPatch, argv: str, runs: list[int], depth: int
) -> None:
    job, _ = asked(monkeypatch, argv)
    assert [size for size, _ in job.runs] == runs
    assert job.depth == depth
    assert all(count == perf.default_iterations(job.kind, size) for size, count in job.runs)


def asked(monkeypatch: pytest.MonkeyPatch, argv: str) -> tuple[perf.PerfJob, dict[str, Any]]:
    """Returns the job that a command line leads to, and what else `measure` is given."""
    found: list[tuple[perf.PerfJob, dict[str, Any]]] = []

    def measure(job: perf.PerfJob, **options: Any) -> perf.Measured:
        found.append((job, options))
        return perf.Measured(job, "f", options["hosts"], None, "cma", ())

    monkeypatch.setattr(perf, "measure", measure)
    assert main(["perf", *argv.split()]) == 0
    ((job, options),) = found
    return job, options


def test_what_is_said_arrives_at_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = "send bw --size 100 --iterations 7 --depth 3 --qp-type UC --mover relay --hosts 1,host0"
    job, options = asked(monkeypatch, argv)
    assert (job.operation, job.kind, job.runs) == ("send", "bw", ((100, 7),))
    assert (job.qp_type, job.depth) == ("UC", 3)
    assert options["mover"] == "relay"
    assert options["hosts"] == ("host1", "host0")
    assert options["fabric"].startswith("perf-")


def test_there_are_fewer_iterations_of_large_messages_but_never_too_few() -> None:
    for kind in perf.KINDS:
        counts = [perf.default_iterations(kind, 1 << power) for power in range(27)]
        assert counts == sorted(counts, reverse=True)
        assert counts[-1] == 32


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("write", "the following arguments are required: kind"),
        ("fly lat", "invalid choice: 'fly'"),
        ("write latency", "invalid choice: 'latency'"),
        ("write lat --size 0", "--size 0: choose 1 to 67108864 bytes"),
        (f"write lat --size {SIZE + 1}", f"--size {SIZE + 1}: choose 1 to 67108864 bytes"),
        ("write lat --size big", "'big': write a number of bytes, or all"),
        ("send bw --qp-type UD --size 4097", "choose 1 to 4096 bytes, the MTU of a datagram"),
        ("atomic lat --size 16", "--size 16: an atomic has 8 bytes"),
        ("write lat --iterations 0", "--iterations 0: choose 1 to 10000000"),
        (f"write lat --iterations {ITERATIONS + 1}", "choose 1 to 10000000"),
        ("write bw --depth 0", "--depth 0: choose 1 to 16384 work requests"),
        (f"write bw --depth {DEPTH + 1}", "choose 1 to 16384 work requests"),
        ("write lat --depth 2", "--depth is for bw"),
        ("read lat --qp-type UC", "a UC queue pair has no read: use --qp-type RC"),
        ("write bw --qp-type UD", "a UD queue pair has no write: use --qp-type RC or UC"),
        ("atomic bw --qp-type UD", "a UD queue pair has no atomic"),
        ("write lat --hosts host0", "'host0': write two hosts, as host0,host1"),
        ("write lat --hosts a,b,c", "write two hosts"),
        ("write lat --mover local", "invalid choice: 'local'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_2(
    capsys: pytest.CaptureFixture[str], argv: str, message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["perf", *argv.split()])
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "")
    assert message in err
    assert err.endswith("see `nupa perf --help`\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--fabric nowhere", "no fabric is named 'nowhere'"),
        ("--hosts host0,moon", "has no host 'moon': its hosts are host0, host1"),
    ],
)
def test_a_fabric_or_host_that_is_not_there_is_one_line_and_1(
    capsys: pytest.CaptureFixture[str], argv: str, message: str
) -> None:
    assert main(["perf", "write", "lat", *argv.split()]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_a_fabric_of_one_host_is_refused_with_what_to_do() -> None:
    with Fabric(hosts=1) as fabric, pytest.raises(LocalError, match="--hosts host0,host0"):
        perf.choose_hosts(fabric, None)


def test_a_job_survives_its_way_to_the_ends() -> None:
    job = perf.make_job("send", "bw", size="all", qp_type="UD", depth=5)
    assert perf.from_json(json.dumps(asdict(job))) == job


# --- what is shown ------------------------------------------------------------------------------

LATENCY = {
    "size_bytes": 8,
    "iterations": 1000,
    "latency_typical_us": 0.25,
    "latency_min_us": 0.2,
    "latency_mean_us": 0.3,
    "latency_p99_us": 0.9,
    "latency_p99_9_us": 4.0,
    "latency_max_us": 70.0,
}
BANDWIDTH = {
    "size_bytes": 65536,
    "iterations": 1000,
    "bandwidth_mb_per_s": 6553.6,
    "message_rate_m_per_s": 0.1,
    "elapsed_s": 0.01,
}


def report(operation: perf.Operation, kind: perf.Kind, row: dict[str, Any]) -> perf.Measured:
    job = perf.make_job(operation, kind)
    return perf.Measured(job, "lab", ("host0", "host1"), (0, 1), "relay", (row,))


def test_latency_is_shown_with_its_definition_and_where() -> None:
    lines = perf.render(report("send", "lat", LATENCY)).splitlines()
    assert lines[0] == "Latency of SEND over RC, µs (half a round trip; typical is the median)"
    assert " ".join(lines[1].split()) == "size iterations typical min mean p99 p99.9 max"
    assert lines[3].split() == [
        "8", "B", "1000", "0.250", "0.200", "0.300", "0.900", "4.00", "70.0"
    ]  # fmt: skip
    assert lines[4] == "host0 to host1 on CPUs 0 and 1, mover relay"
    assert "(there and back;" in perf.render(report("read", "lat", LATENCY))


def test_bandwidth_is_shown_with_its_depth_also_where_only_ascii_is() -> None:
    text = perf.render(report("write", "bw", BANDWIDTH), ASCII)
    assert text.isascii()
    lines = text.splitlines()
    assert lines[0] == "Bandwidth of WRITE over RC, 128 outstanding (1 MB = 10^6 bytes)"
    assert lines[3].split() == ["64", "KiB", "1000", "6554", "0.100"]


@pytest.mark.parametrize(("kind", "row", "depth"), [("lat", LATENCY, 1), ("bw", BANDWIDTH, 128)])
def test_json_has_every_number_with_its_unit(
    kind: perf.Kind, row: dict[str, Any], depth: int
) -> None:
    assert json.loads(json.dumps(report("write", kind, row).to_json())) == {
        "operation": "write",
        "kind": kind,
        "qp_type": "RC",
        "depth": depth,
        "fabric": "lab",
        "hosts": ["host0", "host1"],
        "cpus": [0, 1],
        "mover": "relay",
        "results": [row],
    }


def test_results_can_stand_beside_perftests() -> None:
    (latency,) = perf.latencies(report("send", "lat", LATENCY))
    assert (latency.size_bytes, latency.typical_us, latency.p99_us) == (8, 0.25, 0.9)
    (rate,) = perf.bandwidths(report("write", "bw", BANDWIDTH))
    assert (rate.mean_bytes_per_s, rate.messages_per_s) == (6553.6e6, 0.1e6)


def test_a_failure_names_first_what_is_the_cause() -> None:
    job = perf.make_job("write", "bw")
    killed = ProgramOutcome((), -9, "", "")
    told = ProgramOutcome((), 1, "", "noise\nnothing moved for 5 s\n")
    ended = ProgramOutcome((), -9, "", "", "was killed: not done after 2.0 s")
    mute = ProgramOutcome((), 3, "", "")

    def said(active: ProgramOutcome, passive: ProgramOutcome) -> str:
        return perf.failure(job, PairResult(passive, active, 1.0), ("a", "b"))

    assert said(told, killed) == "write bw failed: b: ended by SIGKILL; a: nothing moved for 5 s"
    assert said(ended, told).endswith(
        "b: nothing moved for 5 s; a: was killed: not done after 2.0 s"
    )
    assert said(mute, ProgramOutcome((), 0, "", "")) == "write bw failed: a: ended with 3"


# --- statistics ---------------------------------------------------------------------------------


def summary(deltas: list[int], tick_ns: float, trips: int) -> Any:
    ticks = [1000]
    for delta in deltas:
        ticks.append(ticks[-1] + delta)
    found = ffi.new("struct nupa_perf_summary *")
    array = ffi.new("uint64_t[]", ticks)
    assert lib.nupa_perf_summarise(array, len(deltas), tick_ns, trips, found) == 0
    return found


def test_percentiles_are_of_the_nearest_rank_in_us() -> None:
    found = summary([1000 - i for i in range(1000)], tick_ns=2000.0, trips=2)
    assert (found.min_us, found.typical_us, found.p99_us) == (1, 500, 990)
    assert (found.p99_9_us, found.max_us) == (999, 1000)
    assert found.mean_us == pytest.approx(500.5)


def test_one_operation_is_every_percentile() -> None:
    found = summary([7], tick_ns=1000.0, trips=1)
    values = (found.min_us, found.typical_us, found.mean_us, found.p99_us, found.max_us)
    assert values == (7, 7, 7, 7, 7)


def test_no_operation_has_no_statistics() -> None:
    nothing, found = ffi.new("uint64_t[]", 1), ffi.new("struct nupa_perf_summary *")
    assert lib.nupa_perf_summarise(nothing, 0, 1.0, 1, found) < 0
