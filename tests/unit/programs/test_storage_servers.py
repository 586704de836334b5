# SPDX-License-Identifier: BSD-3-Clause
"""Ceph's and libiscsi's output, and command lines of unpacked programs; the programs themselves run
in tests/ecosystem/test_storage.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nupa.base.errors import LocalError
from nupa.programs import ceph, tgt
from nupa.programs.ceph import CephError
from nupa.programs.disk import DiskWorkload
from nupa.programs.hosted import HostedCommand
from nupa.programs.tgt import TgtError, TgtPlace
from nupa.programs.unpacked import LIBRARIES, Unpacked

WRITES = {"total_time_run": "2.0", "total_writes_made": "500", "average_latency": "0.004"}
READS = {"total_time_run": "2.0", "total_reads_made": "500", "average_latency": "0.004"}
READ = DiskWorkload("read", 4096, 16)
PERF = """\
capacity is 131072 blocks or 67108864 byte (64 MB)
00:00:01 - lba 54552, iops current 23180 (90 MB/s), iops average 23180 (90 MB/s)\r
iops average 20000 (78 MB/s)                                            \r

finished.
"""


@pytest.mark.parametrize("found", [WRITES, READS])
def test_a_bench_of_rados_is_a_rate(found: dict[str, str]) -> None:
    rate = ceph.parse_bench(f"hints = 1\n{json.dumps(found)}\n", 4096)
    assert (rate.operations_per_s, rate.bytes_per_s, rate.mean_us) == (250.0, 1024000.0, 4000.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hints = 1\n", "JSON with a rate was expected, rados wrote: 'hints = 1"),
        ("{}", "JSON with a rate was expected"),
        (json.dumps({**READS, "total_time_run": "0"}), "JSON with a rate"),
        (json.dumps({**READS, "total_reads_made": "0"}), "moved no object"),
    ],
)
def test_a_bench_without_objects_is_refused(text: str, said: str) -> None:
    with pytest.raises(CephError, match=said):
        ceph.parse_bench(text, 4096)


def test_iscsi_perfs_last_average_is_a_rate_and_by_its_depth_a_latency() -> None:
    rate = tgt.parse_perf(PERF, READ)
    assert (rate.operations_per_s, rate.bytes_per_s) == (20000.0, 81920000.0)
    assert rate.mean_us == pytest.approx(800)
    for text in ("", "Login Failed.", "iops average 0 (0 MB/s)"):
        with pytest.raises(TgtError, match="an average was expected"):
            tgt.parse_perf(text, READ)


def test_iscsi_perf_counts_in_blocks_of_512_bytes_and_whole_seconds() -> None:
    place = TgtPlace("10.0.0.1", 3260, 3261)
    argv = tgt.perf_command(place.url("iser"), READ, 0.5)
    assert argv[:3] == ["iscsi-perf", "-i", tgt.INITIATOR]
    assert argv[3:] == [*("-b", "8", "-m", "16", "-t", "1", f"iser://10.0.0.1:3261/{tgt.TARGET}/1")]
    assert place.url("iscsi") == f"iscsi://10.0.0.1:3260/{tgt.TARGET}/1"


def test_an_unpacked_program_runs_by_its_own_loader_and_over_our_libraries(tmp_path: Path) -> None:
    for name in ("usr/lib/x86_64-linux-gnu/libx.so", "usr/bin/it", "usr/sbin/that"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    programs = Unpacked(tmp_path)
    with pytest.raises(LocalError, match="has no library ld-linux-x86-64"):
        programs.command("it")
    loader = tmp_path / "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    loader.parent.mkdir(parents=True)
    loader.touch()
    own = f"{tmp_path}/usr/lib/x86_64-linux-gnu:{loader.parent}"
    argv = programs.command("it", "-v", more=[Path("/more")])
    assert argv[:5] == [
        *(str(loader), "--argv0", "it", "--library-path", f"{LIBRARIES}:{own}:/more")
    ]
    assert argv[5:] == [f"{tmp_path}/usr/bin/it", "-v"]
    assert programs.command("that", ours=False)[4:] == [own, f"{tmp_path}/usr/sbin/that"]
    with pytest.raises(LocalError, match="has no program absent"):
        programs.command("absent")


def test_a_command_for_rdma_is_on_the_host_and_in_its_namespace() -> None:
    tcp = HostedCommand("f", "host0", "10.0.0.1", rdma=False).command(["it"])
    rdma = HostedCommand("f", "host0", "10.0.0.1", rdma=True).command(["it"])
    assert tcp[-6:] == ["exec", "--fabric", "f", "host0", "--", "it"]
    assert rdma[: len(tcp) - 1] == tcp[:-1]
    assert "run" in rdma[len(tcp) - 1 :]
    assert rdma[-1] == "it"
