# SPDX-License-Identifier: BSD-3-Clause
"""`nupa vm demo`: its steps with guests that only report results, the tables made of these, and the
run of a pair of programs."""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from nupa.base.progress import Progress
from nupa.cli.vm import demo as _vm_demo
from nupa.fabric import Fabric
from nupa.measure import guest_report
from nupa.measure.guest_report import GuestProgram, GuestReport, Score
from nupa.measure.text import ASCII
from nupa.programs import iperf3
from nupa.programs.pair import ProgramError, free_port
from nupa.vm import demo, pair
from nupa.vm.demo import Demo, Workload
from nupa.vm.files.state import Guest, MachineState
from nupa.vm.machine import machine

LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\
   99% percentile[usec]   99.9% percentile[usec]
 64      100    0.24    9.65    0.27    0.29    0.04    0.41    9.65
"""
BANDWIDTH = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      100              0.00               8.00		   1.048576
"""
UP = MachineState(
    name="demo",
    kind="cxl",
    coherence="hardware",
    memory_bytes=256 << 20,
    ram_bytes=1 << 30,
    machine_host="host2",
    segment="/dev/shm/none",
    qemu_version="11.1.3",
    kernel="6.12",
    created_s=0.0,
    guests=(Guest("host0", 0, ("qemu",)), Guest("host1", 1, ("qemu",))),
)
PLAN = Workload(rounds=2, latency_iterations=30, bandwidth_iterations=20, tcp_seconds=1)
LAT = GuestProgram("ib_send_lat", "SEND 64 B, latency", "µs", True, "soft-RoCE", 64, target=50.0)
# In the order of the steps: over NUPA each is so many times better.
BETTER = {"ib_send_lat": 80, "ib_write_lat": 60, "ib_read_lat": 70, "ib_write_bw": 9, "iperf3": 2}


class Guests:
    """Stands in for Pair: answers each command, or fails for those named in *broken*."""

    def __init__(self, broken: Sequence[str] = ()) -> None:
        self.broken = broken
        self.ran: list[tuple[str, str]] = []
        self.measured: list[tuple[list[str], bool]] = []

    def __call__(self, name: str, hosts: tuple[str, str], _s: float, _tick: object) -> Guests:
        assert (name, hosts) == ("demo", ("host0", "host1"))
        return self

    def net_up(self) -> None:
        self.run("host0", ["net up"])

    def run(self, host: str, argv: Sequence[str]) -> str:
        self.ran.append((host, argv[-1]))
        if any(word in " ".join(argv) for word in self.broken):
            raise ProgramError(f"`{argv[-1]}` ended with 1")
        return ""

    def measure(self, _server: list[str], client: list[str], port: int, *, nupa: bool) -> str:
        assert str(port) in client
        self.measured.append((client, nupa))
        program = client[0]
        if program in self.broken:
            raise ProgramError(f"`{program}` ended with 1")
        over_nupa = nupa or "10.0.0.1" in client
        factor = BETTER[program] if over_nupa else 1
        if program == "iperf3":
            return json.dumps({"end": {"sum_received": {"bits_per_second": 8e6 * factor}}})
        if program.endswith("_lat"):
            return LATENCY.replace("0.27", f"{840 / factor:.2f}")
        return BANDWIDTH.replace("8.00", f"{8 * factor:.2f}")


def run(
    monkeypatch: pytest.MonkeyPatch, guests: Guests, plan: Workload = PLAN
) -> tuple[GuestReport, list[str]]:
    monkeypatch.setattr(demo, "Pair", guests)
    host = SimpleNamespace(ipv4="10.0.0.1")
    fabric = SimpleNamespace(host=lambda _: host)
    monkeypatch.setattr(Fabric, "open", lambda _: nullcontext(fabric))
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    out = io.StringIO()
    with Progress(Demo.STEPS, out) as progress:
        report = Demo(plan, progress, UP, clock=iter(range(100)).__next__).run()
    return report, out.getvalue().splitlines()


def test_each_program_is_measured_over_nupa_and_over_the_other_by_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guests = Guests()
    report, steps = run(monkeypatch, guests)
    assert report.ok
    assert report.targets_met
    assert report.elapsed_s == 1
    assert [score.comparison.program for score in report.scores] == list(BETTER)
    for score in report.scores:
        assert len(score.runs["nupa"]) == len(score.runs["other"]) == PLAN.rounds
        assert score.ratio == pytest.approx(BETTER[score.comparison.program], rel=0.01)
    sends = [nupa for client, nupa in guests.measured if client[0] == "ib_send_lat"]
    assert sends == [True, False, True, False]
    # TCP runs as the system has it, on both sides.
    tcp = [(client, nupa) for client, nupa in guests.measured if client[0] == "iperf3"]
    assert [client[client.index("-c") + 1] for client, _ in tcp] == ["10.0.0.1", "host0"] * 2
    assert not any(nupa for _, nupa in tcp)
    assert len(steps) == Demo.STEPS
    assert steps[-1].startswith(f"[{Demo.STEPS}/{Demo.STEPS}]")


def test_sizes_and_counts_reach_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    guests = Guests()
    run(monkeypatch, guests)
    words = {client[0]: client for client, _ in guests.measured}
    for program, size, count in (("ib_send_lat", "64", "30"), ("ib_write_bw", "65536", "20")):
        argv = words[program]
        assert argv[argv.index("-s") + 1] == size
        assert argv[argv.index("-n") + 1] == count
        assert argv[-1] == "host0"


def test_without_soft_roce_nupa_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    guests = Guests(broken=["rdma_rxe"])
    report, _ = run(monkeypatch, guests)
    assert not report.ok
    assert report.failures[0].startswith("soft-RoCE in the guests:")
    sends = report.scores[0]
    assert sends.runs["nupa"]
    assert not sends.runs["other"]
    assert sends.ratio is None
    assert sends.met is False
    assert report.scores[-1].ratio == pytest.approx(2)


def test_without_the_program_rdma_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which
    report, _ = run(monkeypatch, Guests())
    assert report.ok
    monkeypatch.setattr(shutil, "which", found)
    one = Demo.__new__(Demo)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ProgramError, match="iproute2 ibverbs-providers"):
        one._soft_roce()


def test_a_program_that_fails_does_not_stop_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = run(monkeypatch, Guests(broken=["ib_write_lat", "net up"]))
    assert [failure.partition(":")[0] for failure in report.failures] == [
        "ib_write_lat, WRITE 64 B, latency",
        "nupa_net0 in the guests",
    ]
    assert report.scores[2].ratio
    assert report.scores[4].runs == {
        "nupa": [],
        "other": [1.0] * PLAN.rounds,
    }


def test_the_best_run_of_each_side_counts() -> None:
    lower = Score(LAT, {"nupa": [8.0, 4.0, 9.0], "other": [500.0, 400.0]})
    assert (lower.best("nupa"), lower.best("other"), lower.ratio) == (4.0, 400.0, 100.0)
    higher = Score(
        GuestProgram("ib_write_bw", "WRITE", "MB/s", False, "soft-RoCE", target=5.0),
        {"nupa": [90.0, 100.0], "other": [25.0, 20.0]},
    )
    assert (higher.ratio, higher.met) == (4.0, False)


def test_the_table_shows_ratios_and_which_targets_are_met() -> None:
    missed = GuestProgram("iperf3", "TCP, one stream", "MB/s", False, "TCP, virtio-net", target=1.0)
    free = GuestProgram("ib_read_lat", "READ 64 B, latency", "µs", True, "soft-RoCE", 64)
    report = GuestReport("cxl", "11.1.3", "6.12", 256 << 20, elapsed_s=61.2)
    report.scores += [
        Score(LAT, {"nupa": [4.0], "other": [400.0]}),
        Score(missed, {"nupa": [40.0], "other": [80.0]}),
        Score(free, {"nupa": [5.0], "other": []}),
    ]
    report.notes.append("busy")
    lines = guest_report.render(report, ASCII).splitlines()
    assert re.split("  +", lines[2]) == [
        *("ib_send_lat, SEND 64 B, latency", "4.00 µs", "400 µs", "soft-RoCE", "100x"),
        *("at least 50x", "met"),
    ]
    assert lines[3].split()[-4:] == ["least", "1x", "NOT", "MET"]
    assert "0.500x" in lines[3]
    assert lines[4].split()[-4:] == ["-", "soft-RoCE", "-", "-"]
    assert "note: busy" in lines
    assert lines[-1] == ("All worked: cxl, QEMU 11.1.3, Linux 6.12, 61.2 s; targets not met: 1.")
    report.failures.append("iperf3: it ended")
    assert "NOT all worked" in guest_report.render(report).splitlines()[-1]


def test_json_has_every_figure_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = run(monkeypatch, Guests())
    value = json.loads(json.dumps(report.to_json()))
    assert value["ok"] is value["targets_met"] is True
    assert (value["kind"], value["qemu"], value["kernel"]) == ("cxl", "11.1.3", "6.12")
    found = {result["program"]: result for result in value["results"]}
    assert found["ib_send_lat"]["target"] == 50
    assert found["ib_send_lat"]["met"] is True
    assert found["ib_send_lat"]["size_bytes"] == 64
    assert found["ib_send_lat"]["unit"] == "µs"
    assert found["ib_write_bw"]["target"] == 5
    assert found["ib_write_bw"]["size_bytes"] == 65536
    assert found["ib_read_lat"]["met"] is None
    assert found["iperf3"]["other_runs"] == [1.0, 1.0]
    assert found["iperf3"]["ratio"] == 2
    assert found["iperf3"]["better"] == "higher"
    assert found["ib_send_lat"]["better"] == "lower"


@pytest.mark.parametrize("text", ["", "{}", '{"end": {}}', '{"end": {"sum_received": 3}}', "[1]"])
def test_what_is_no_result_of_iperf3_is_shown(text: str) -> None:
    with pytest.raises(iperf3.Iperf3Error, match="a sum of what was received was expected"):
        iperf3.parse_bits_per_s(text)


def test_iperf3_in_both_directions_is_summed() -> None:
    both = {"sum_received": {"bits_per_second": 3}, "sum_received_bidir": {"bits_per_second": 4}}
    assert iperf3.parse_bits_per_s(json.dumps({"end": both})) == 7


# --- how programs are run ------------------------------------------------------------------------

# Stands in for `nupa vm run`: runs the command here.
RUNNER = """\
import os, sys
argv = sys.argv[sys.argv.index("--") + 1:]
os.execvp(argv[0], argv)
"""
SERVER = """\
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    with listener.accept()[0] as peer:
        peer.sendall(b"measured")
"""
CLIENT = """\
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as peer:
    print(peer.recv(8).decode())
"""


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pair.Pair:
    runner = tmp_path / "runner.py"
    runner.write_text(RUNNER)
    monkeypatch.setattr(pair, "NUPA", (sys.executable, str(runner)))
    return pair.Pair("demo", ("host0", "host1"), 20.0, lambda _: None)


def python(script: str, *words: str) -> list[str]:
    return [sys.executable, "-c", script, *words]


def test_the_client_starts_once_the_server_listens(local: pair.Pair) -> None:
    port = free_port()
    server, client = python(SERVER, str(port)), python(CLIENT, str(port))
    assert local.measure(server, client, port, nupa=True) == "measured\n"


def test_a_server_that_ends_too_early_is_an_error_with_its_words(local: pair.Pair) -> None:
    port = free_port()
    server = python("import sys; sys.exit('no device')")
    with pytest.raises(ProgramError, match="no device"):
        local.measure(server, python(CLIENT, str(port)), port, nupa=True)


def test_a_command_in_a_guest_says_what_it_printed_or_why_it_failed(local: pair.Pair) -> None:
    assert local.run("host0", ["echo", "done"]) == "done\n"
    with pytest.raises(ProgramError, match="ended with 3"):
        local.run("host0", ["sh", "-c", "exit 3"])


def test_a_command_that_is_not_done_in_time_is_killed(local: pair.Pair) -> None:
    hasty = pair.Pair(local.machine, local.hosts, 0.1, local.tick)
    with pytest.raises(ProgramError, match="was killed: not done"):
        hasty.run("host0", ["sleep", "100"])


def test_programs_over_soft_roce_have_the_systems_libraries() -> None:
    ours = pair.Pair("demo", ("host0", "host1"), 1.0, lambda _: None)
    words = ours.command("host1", ["ib_send_lat"], nupa=False)
    after = words[words.index("--") + 1 :]
    assert after == ["env", "-u", "LD_PRELOAD", "-u", "LD_LIBRARY_PATH", "ib_send_lat"]
    assert ours.command("host1", ["ib_send_lat"], nupa=True)[-2:] == ["--", "ib_send_lat"]


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def downs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of machines that were taken down."""
    taken: list[str] = []
    monkeypatch.setattr(demo, "missing", lambda: "")
    monkeypatch.setattr(_vm_demo, "busy_cpus", lambda: 0.0)
    monkeypatch.setattr(machine, "up", lambda *_, **__: UP)
    monkeypatch.setattr(machine, "down", lambda name, **_: taken.append(name))
    return taken


def args(**changed: object) -> argparse.Namespace:
    values = {"fabric": "demo", "kind": None, "qemu": None, "timeout": 1.0}
    flags = {"quick": False, "json": False, "keep": False}
    return argparse.Namespace(**{**values, **flags, **changed})


def test_the_machine_goes_at_the_end(
    monkeypatch: pytest.MonkeyPatch, downs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    report = GuestReport("cxl", "11.1.3", "6.12", 1)
    monkeypatch.setattr(_vm_demo, "_measure", lambda *_: report)
    assert _vm_demo.run(args(json=True)) == 0
    assert downs == ["demo"]
    assert json.loads(capsys.readouterr().out)["ok"] is True
    report.failures.append("all")
    assert _vm_demo.run(args()) == 1


def test_the_machine_goes_by_ctrl_c_even_if_it_was_to_be_kept(
    monkeypatch: pytest.MonkeyPatch, downs: list[str]
) -> None:
    def interrupted(*_: object) -> GuestReport:
        raise SystemExit(130)

    monkeypatch.setattr(_vm_demo, "_measure", interrupted)
    with pytest.raises(SystemExit):
        _vm_demo.run(args(keep=True))
    assert downs == ["demo"]


def test_a_machine_that_is_kept_stays_and_how_it_goes_is_said(
    monkeypatch: pytest.MonkeyPatch, downs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_vm_demo, "_measure", lambda *_: GuestReport("cxl", "11", "6", 1))
    assert _vm_demo.run(args(keep=True)) == 0
    assert downs == []
    assert "nupa vm down demo" in capsys.readouterr().err


def test_missing_programs_are_named_before_anything_boots(
    monkeypatch: pytest.MonkeyPatch, downs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "missing", lambda: "perftest is not installed: do this")
    assert _vm_demo.run(args()) == 2
    assert downs == []
    assert "perftest is not installed" in capsys.readouterr().err


def test_what_is_missing_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "iperf3" else name)
    assert "apt-get install iperf3" in demo.missing()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "apt-get install perftest" in demo.missing()
    monkeypatch.setattr(shutil, "which", lambda name: name)
    assert demo.missing() == ""
