# SPDX-License-Identifier: BSD-3-Clause
"""`nupa vm storage`: its steps with guests that only report results, and its table."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from nupa.base.errors import LocalError
from nupa.base.progress import Progress
from nupa.cli import main
from nupa.cli.vm import storage as command
from nupa.fabric import Fabric
from nupa.measure.storage_report import StorageReport, render
from nupa.programs import disk, fio
from nupa.programs.pair import ProgramError
from nupa.vm.boot import unpacked as unpacking
from nupa.vm.boot.unpacked import unpacked
from nupa.vm.machine import machine
from nupa.vm.storage import session
from nupa.vm.storage.protocol import PROTOCOLS, StorageProtocol
from nupa.vm.storage.session import StoragePlan, StorageSession
from nupa.vm.storage.transport import TRANSPORTS, named
from tests.unit.programs.test_disk import IDLE
from tests.unit.programs.test_fio import RATE

from .test_demo import UP

NVME, NFS, ISER = PROTOCOLS


class Guests:
    """Stands in for Pair: answers each command, or fails for those with a word of *broken*."""

    def __init__(self, broken: Sequence[str] = ()) -> None:
        self.broken = broken
        self.ran: list[str] = []

    def __call__(self, name: str, hosts: tuple[str, str], _s: float, _tick: object) -> Guests:
        assert (name, hosts) == ("demo", ("host0", "host1"))
        return self

    def net_up(self) -> None:
        self.ran.append("net up")

    def run(self, host: str, argv: Sequence[str], *, deadline_s: float | None = None) -> str:
        line = " ".join([host, *argv])
        self.ran.append(line)
        if any(word in line for word in self.broken):
            raise ProgramError(f"`{line}` ended with 1")
        if "fio" not in argv:
            return "/dev/nvme0n1\n" if "attach" in argv else ""
        assert deadline_s is not None
        jobs = [{"jobname": "verify", "write": RATE, "read": RATE}]
        for each in disk.WORKLOADS:
            jobs.append({"jobname": each.name, "read": IDLE, "write": IDLE, each.direction: RATE})
        return json.dumps({"jobs": jobs}, indent=2)

    def words(self, script: str) -> list[str]:
        """Returns what the protocol's script was asked for, in order."""
        return [line.partition(f"{script} ")[2] for line in self.ran if script in line]


def run(
    monkeypatch: pytest.MonkeyPatch, guests: Guests, protocol: StorageProtocol = NVME
) -> tuple[StorageReport, list[str]]:
    monkeypatch.setattr(session, "Pair", guests)
    addresses = {"host0": "10.0.0.1", "host1": "10.0.0.2"}
    fabric = SimpleNamespace(host=lambda name: SimpleNamespace(ipv4=addresses[name]))
    monkeypatch.setattr(Fabric, "open", lambda _: nullcontext(fabric))
    plan = StoragePlan(protocol, TRANSPORTS, 32 << 20, 1.0)
    out = io.StringIO()
    clock = iter(range(100)).__next__
    with Progress(plan.steps, out) as progress:
        report = StorageSession(plan, progress, UP, {"ISCSI": "/there"}, clock=clock).run()
    return report, out.getvalue().splitlines()


def test_each_transport_is_set_up_measured_and_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    guests = Guests()
    report, steps = run(monkeypatch, guests)
    assert report.ok
    assert list(report.rates) == [transport.name for transport in TRANSPORTS]
    assert steps[-1].startswith(f"[{len(steps)}/{len(steps)}]")
    assert guests.words("nvme.sh") == [
        "serve 48 10.0.0.2 192.168.77.2",
        *("offer rdma 10.0.0.1", "attach rdma 10.0.0.1 10.0.0.2", "detach", "withdraw") * 2,
        *("offer tcp 10.0.0.1", "attach tcp 10.0.0.1 10.0.0.2", "detach", "withdraw"),
        *("offer tcp 192.168.77.1", "attach tcp 192.168.77.1 192.168.77.2", "detach", "withdraw"),
        "end",
    ]
    links = [line for line in guests.ran if "rdma link" in line]
    assert [line.split()[0] for line in links] == ["host0", "host1", "host1", "host0"] * 2
    assert ["delete" in line for line in links] == [False, False, True, True] * 2
    assert ["nupa_rdma0" in line for line in links] == [True] * 4 + [False] * 4
    assert "host0 modprobe nvmet_rdma" in guests.ran
    assert "host1 modprobe nvme_rdma" in guests.ran
    assert "host0 env ISCSI=/there sh" in next(line for line in guests.ran if "serve" in line)


def test_a_transport_that_fails_is_taken_down_and_does_not_stop_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guests = Guests(broken=["attach rdma"])
    report, _ = run(monkeypatch, guests)
    assert not report.ok
    assert list(report.rates) == ["tcp", "virtio"]
    assert report.failures[0].startswith("RDMA by NUPA's kernel modules")
    assert report.failures[1].startswith("RDMA by the kernel's rdma_rxe")
    assert guests.words("nvme.sh")[3:5] == ["detach", "withdraw"]
    assert sum("rdma link delete" in line for line in guests.ran) == 4


def test_a_failure_to_take_down_is_told_beside_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = run(monkeypatch, Guests(broken=["attach rdma", "link delete"]))
    said = [failure.partition(": ")[0] for failure in report.failures]
    rdma = [transport.what for transport in TRANSPORTS if transport.rdma]
    assert said == [told for what in rdma for told in (f"end of {what}", f"end of {what}", what)]


def test_without_a_target_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = run(monkeypatch, Guests(broken=["modprobe nvmet_rdma"]))
    assert report.rates == {}
    assert "modprobe nvmet_rdma" in report.failures[0]
    assert len(report.failures) == 1


def test_guests_get_the_modules_of_the_protocol_and_of_its_transports() -> None:
    plan = StoragePlan(NFS, TRANSPORTS, 1, 1.0)
    assert plan.modules == ("nfsd", "rpcrdma", "nfsv4", "rdma_rxe")
    assert plan.nupa_modules
    plan = StoragePlan(NFS, named("tcp,virtio"), 1, 1.0)
    assert plan.modules == ("nfsd", "rpcrdma", "nfsv4")
    assert not plan.nupa_modules


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.name)
def test_each_script_is_one_that_sh_can_parse_and_has_all_steps(protocol: StorageProtocol) -> None:
    subprocess.run(["sh", "-n", protocol.script], check=True)
    text = Path(protocol.script).read_text()
    for step in ("serve", "offer", "attach", "detach", "withdraw", "end"):
        assert f"\n{step}() {{\n" in text
        assert f"\n#   {protocol.name}.sh {step}" in text


def test_transports_are_named_in_any_order_and_measured_in_ours() -> None:
    assert [each.name for each in named("virtio,rxe")] == ["rxe", "virtio"]
    for text in ("", "rxe,", "rocket"):
        with pytest.raises(LocalError, match="is not a transport: there are nupa, rxe, tcp, v"):
            named(text)


def test_the_help_names_all_transports_and_protocols() -> None:
    for transport in TRANSPORTS:
        assert f"\n  {transport.name} " in command._EPILOG
    for protocol in PROTOCOLS:
        assert f"nupa vm storage {protocol.name}" in command._EPILOG


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "fio" else name)
    assert session.missing(TRANSPORTS) == fio.INSTALL_HINT
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "rdma" else name)
    assert "iproute2" in session.missing(TRANSPORTS)
    assert session.missing(named("tcp,virtio")) == ""


def test_the_table_has_a_column_for_each_transport_and_a_dash_for_what_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report, _ = run(monkeypatch, Guests(broken=["attach rdma"]))
    lines = render(report).splitlines()
    assert lines[0].split() == ["NVMe", "over", "Fabrics", "nupa", "rxe", "tcp", "virtio"]
    assert lines[2].split() == ["write", "128KiB", "x", "8", "MB/s", "-", "-", "4.10", "4.10"]
    assert lines[-1].startswith("NOT all worked (memory cxl, QEMU 11.1.3, Linux 6.12, ")
    assert "tcp: TCP over nupa_net0" in lines
    found = json.loads(json.dumps(report.to_json()))
    assert found["storage"] == "NVMe over Fabrics"
    assert len(found["results"]) == 2 * len(disk.WORKLOADS)
    assert found["results"][0]["transport"] == "tcp"
    assert found["results"][0]["block_bytes"] == 128 << 10
    assert [each["name"] for each in found["transports"]] == ["nupa", "rxe", "tcp", "virtio"]


class Machine:
    """Stands in for nupa.vm.machine: remembers what was up and what went down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.downs: list[tuple[str, bool]] = []
        monkeypatch.setattr(machine, "up", lambda *_, **__: UP)
        monkeypatch.setattr(machine, "down", lambda name, force: self.downs.append((name, force)))
        monkeypatch.setattr(shutil, "which", lambda name, **_: name)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_takes_the_machine_down(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    found = Machine(monkeypatch)

    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(session, "StorageSession", stop)
    arguments = argparse.Namespace(
        protocol="nvme", over=None, size=1, seconds=1.0, kind=None, qemu=None, fabric=None,
        timeout=1.0, json=False,
    )  # fmt: skip
    with pytest.raises(error):
        command._storage(arguments)
    assert found.downs == [("storage", True)]


def test_a_run_prints_its_table_or_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Machine(monkeypatch)
    report = StorageReport("NFS 4.2", (), failures=["TCP: no"])
    monkeypatch.setattr(session, "StorageSession", lambda *_: SimpleNamespace(run=lambda: report))
    assert main(["vm", "storage", "nfs", "--over", "tcp", "--fabric", "x"]) == 1
    assert "FAILED: TCP: no" in capsys.readouterr().out
    assert main(["vm", "storage", "nfs", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failures"] == ["TCP: no"]
    assert found.downs == [("x", True), ("storage", True)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tape"], "invalid choice: 'tape'"),
        (["nvme", "--over", "tin"], "'tin' is not a transport"),
        (["nvme", "--size", "1"], "not a multiple of 1MiB"),
        (["nvme", "--size", "257M"], "not a size from 1MiB to 256MiB"),
        (["nvme", "--seconds", "0"], "not a time above 0"),
    ],
)
def test_a_wrong_word_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["vm", "storage", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_packages_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUPA_VM_CACHE", str(tmp_path))
    asked: list[object] = []

    class Apt:
        def __init__(self, *words: object) -> None:
            asked.append(words[-1])

        def update(self) -> None:
            asked.append("update")

        def closure(self, what: str, names: Sequence[str], target: Path) -> None:
            asked.append((what, names))
            target.mkdir()

    monkeypatch.setattr(unpacking.packages, "Apt", Apt)
    monkeypatch.setattr(unpacking.packages, "check_programs", lambda: None)
    monkeypatch.setattr(unpacking.packages, "find_mirror", lambda: "mirror")
    for _ in range(2):
        assert unpacked("it.1", ["a", "b"], print, ["bookworm"]) == tmp_path / "it.1"
    assert asked == [["bookworm"], "update", ("a and b", ["a", "b"])]


def test_the_initiator_of_iser_knows_where_its_programs_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nupa.vm.storage.protocol.unpacked", lambda *_: Path("/there"))
    assert ISER.variables(print) == {"ISCSI": "/there"}
    assert NVME.variables(print) == {}
