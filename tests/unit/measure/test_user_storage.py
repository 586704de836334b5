# SPDX-License-Identifier: BSD-3-Clause
"""The steps of `nupa demo storage`, with servers that only report results."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nupa.base.closing import Closing
from nupa.base.progress import Progress
from nupa.fabric import Fabric
from nupa.measure import user_storage
from nupa.measure.storage_report import StorageReport, render
from nupa.measure.user_storage import UserStorage, UserStoragePlan
from nupa.programs.ceph import CephHosts
from nupa.programs.disk import DiskRate
from nupa.programs.pair import ProgramError
from nupa.programs.unpacked import Unpacked

PLAN = UserStoragePlan(((4096, 1), (65536, 16)), 1.0)


class Servers:
    """Stands in for clusters, targets and iscsi-perf; those of *broken* fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: str = "") -> None:
        self.broken = broken
        self.did: list[str] = []
        monkeypatch.setattr(user_storage, "CephCluster", self._cluster)
        monkeypatch.setattr(user_storage, "TgtTarget", self._target)
        monkeypatch.setattr(user_storage, "run", self._run)
        monkeypatch.setattr(Unpacked, "command", lambda _, *argv, **__: list(argv))

    def _does(self, what: str) -> None:
        self.did.append(what)
        if what == self.broken:
            raise ProgramError(f"{what} ended with 1")

    def _cluster(self, _programs: object, hosts: CephHosts, _folder: Path) -> Closing:
        way = "rdma" if hosts.server.rdma else "tcp"
        self._does(f"ceph {way}")
        return Cluster(self, way)

    def _target(self, _serve: object, _admin: object, driver: str, *_: object) -> Closing:
        self._does(driver)
        return Server(self, driver)

    def _run(self, argv: Sequence[str], **_: object) -> Any:
        self._does("perf " + argv[-1].partition(":")[0])
        return SimpleNamespace(check=lambda: SimpleNamespace(stdout="iops average 100 (0 MB/s)"))


class Server(Closing):
    def __init__(self, servers: Servers, what: str) -> None:
        self.servers, self.what = servers, what

    def close(self) -> None:
        self.servers.did.append(f"end {self.what}")


class Cluster(Server):
    def bench(self, block_bytes: int, depth: int, seconds: float) -> list[DiskRate]:
        assert (depth, seconds) in {(1, 1.0), (16, 1.0)}
        self.servers._does(f"bench {self.what}")
        return [DiskRate(each, each * block_bytes, 1e6 / each) for each in (100.0, 200.0)]


def run(tmp_path: Path) -> list[StorageReport]:
    hosts = [SimpleNamespace(name=f"host{i}", ipv4=f"10.0.0.{i + 1}") for i in range(2)]
    by_name = {host.name: host for host in hosts}
    fabric = SimpleNamespace(name="f", hosts=hosts, host=by_name.__getitem__)
    out = io.StringIO()
    with Progress(PLAN.steps, out) as progress:
        steps = UserStorage(PLAN, progress, cast(Fabric, fabric), Unpacked(tmp_path), tmp_path)
        reports = steps.run()
    assert f"[{PLAN.steps}/{PLAN.steps}]" in out.getvalue() or reports[0].failures
    return reports


def test_both_transports_are_up_and_measured_by_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers(monkeypatch)
    ceph, iscsi = run(tmp_path)
    assert ceph.ok
    assert iscsi.ok
    benches = ["bench rdma", "bench tcp"] * len(PLAN.jobs)
    assert servers.did[:8] == ["ceph rdma", "ceph tcp", *benches, "end tcp", "end rdma"]
    perfs = ["perf iser", "perf iscsi"] * len(PLAN.jobs)
    assert servers.did[8:] == ["iser", "iscsi", *perfs, "end iscsi", "end iser"]
    assert [len(ceph.rates[way]) for way in ("rdma", "tcp")] == [4, 4]
    assert [len(iscsi.rates[way]) for way in ("rdma", "tcp")] == [2, 2]
    lines = render(ceph).splitlines()
    assert lines[0].split() == ["Ceph", "16,", "memstore", "rdma", "tcp"]
    assert lines[2].split() == ["write", "4KiB", "x", "1", "IOPS", "100", "100"]
    assert lines[5].split()[-3:] == ["MB/s", "13.1", "13.1"]


def test_a_server_that_fails_ends_the_other_and_does_not_stop_the_next_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers(monkeypatch, broken="ceph tcp")
    ceph, iscsi = run(tmp_path)
    assert servers.did[:3] == ["ceph rdma", "ceph tcp", "end rdma"]
    assert ceph.failures == ["Ceph: a monitor and an OSD of each transport: ceph tcp ended with 1"]
    assert ceph.rates == {}
    assert iscsi.ok


def test_a_measurement_that_fails_does_not_stop_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, iscsi = (Servers(monkeypatch, broken="perf iscsi"), run(tmp_path))[1]
    assert len(iscsi.failures) == len(PLAN.jobs)
    assert len(iscsi.rates["rdma"]) == len(PLAN.jobs)
    assert "tcp" not in iscsi.rates


def test_iser_reads_blocks_no_larger_than_libiscsis_buffers() -> None:
    plan = UserStoragePlan(((65536, 16), (1 << 20, 16), (4 << 20, 16), (1 << 20, 1)), 1.0)
    assert plan.iscsi_jobs == [(65536, 16), (262144, 16), (262144, 1)]
    assert plan.steps == 2 + 4 + 3
