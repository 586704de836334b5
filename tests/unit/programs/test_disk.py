# SPDX-License-Identifier: BSD-3-Clause
"""fio's command line on a disk, and its JSON; fio itself runs in tests/system/test_storage.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nupa.programs import disk
from nupa.programs.disk import DiskWorkload
from nupa.programs.fio import FioError
from tests.unit.programs.test_fio import RATE

READ = DiskWorkload("read", 4096, 16, random=True)
WRITE = DiskWorkload("write", 128 << 10, 8)
IDLE: dict[str, Any] = {"iops": 0, "bw_bytes": 0, "runtime": 0, "lat_ns": {"mean": 0}}


def output(*changed: dict[str, Any]) -> str:
    """Returns fio's JSON of a run of READ and WRITE; jobs are added, or replaced by name."""
    jobs = {
        "verify": {"jobname": "verify", "error": 0, "write": RATE, "read": RATE},
        READ.name: {"jobname": READ.name, "error": 0, "read": RATE, "write": IDLE},
        WRITE.name: {"jobname": WRITE.name, "error": 0, "read": IDLE, "write": RATE},
    }
    jobs.update({job["jobname"]: job for job in changed})
    return json.dumps({"jobs": [job for job in jobs.values() if len(job) > 1]}, indent=2)


def test_all_blocks_are_verified_before_the_first_measurement() -> None:
    argv = disk.command("/dev/nvme0n1", 32 << 20, 0.5, [WRITE, READ])
    assert argv[0] == "fio"
    assert {"--filename=/dev/nvme0n1", "--size=33554432", "--direct=1"} <= set(argv)
    names = [word.removeprefix("--name=") for word in argv if word.startswith("--name=")]
    assert names == ["verify", "write 128KiB x 8", "random read 4KiB x 16"]
    verify = argv[argv.index("--name=verify") : argv.index(f"--name={WRITE.name}")]
    assert {"--rw=randwrite", "--verify=crc32c", "--verify_fatal=1"} <= set(verify)
    assert not [word for word in verify if "time" in word]
    last = argv[argv.index(f"--name={READ.name}") :]
    assert last[1:] == [
        *("--stonewall", "--rw=randread", "--bs=4096", "--iodepth=16"),
        *("--time_based", "--runtime=500ms"),
    ]


def test_a_rate_is_that_of_the_workloads_direction() -> None:
    rates = disk.parse(f"fio: a note\n{output()}", [READ, WRITE])
    assert list(rates) == [READ, WRITE]
    assert {rate.bytes_per_s for rate in rates.values()} == {4096000.0}


def test_large_blocks_are_about_bytes_and_small_ones_about_requests() -> None:
    assert (WRITE.unit, READ.unit) == ("MB/s", "IOPS")
    assert [each.unit for each in disk.WORKLOADS] == ["MB/s"] * 2 + ["IOPS"] * 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fio: verify: bad magic", "JSON with jobs was expected.*(?s:.*)bad magic"),
        (output({"jobname": "verify"}), "no job that verifies"),
        (output({"jobname": "verify", "error": 84}), "job verify ended with error 84"),
        (output({"jobname": "verify", "write": RATE, "read": IDLE}), "of reads"),
        (output({"jobname": READ.name}), "no job 'random read 4KiB x 16'"),
        (output({"jobname": READ.name, "error": 5}), "ended with error 5"),
    ],
)
def test_a_run_without_verified_data_is_refused(text: str, said: str) -> None:
    with pytest.raises(FioError, match=said):
        disk.parse(text, [READ, WRITE])
