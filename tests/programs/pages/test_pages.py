# SPDX-License-Identifier: BSD-3-Clause
"""README.md and docs: each block of commands runs as it is written, or has a reason.

A line that says "on another terminal" has a server, which runs beside the lines behind it.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.needs import needs

ROOT = Path(__file__).parents[3]
#: Blocks that run here: their page, and words that no other block of it has.
RUN = [
    ("README.md", "nupa show lab"),
    ("README.md", "nupa capture -w x.pcapng"),
    ("README.md", "nupa fm serve"),
    ("docs/ecosystem.md", "fi_info"),
    ("docs/ecosystem.md", "-- rdma link"),
    ("docs/ecosystem.md", "qperf"),
    ("docs/faults.md", "add drop"),
    ("docs/serve.md", "lab.sock"),
    ("docs/mads.md", "opensm"),
    ("docs/tenants.md", "--fabric lab"),
    ("docs/tenants.md", "--topology tenants"),
    ("docs/tenants.md", "nupa host add host2"),
    ("docs/tenants.md", "nupa host add accelerator:7"),
    ("docs/topology.md", "--pool 4G"),
    ("docs/topology.md", "lab.toml"),
]
#: A reader's machine has time; one that runs all tests is busy, and takes its seconds so often.
SLOWER = 3
#: Lines of these blocks that are left out: they set the machine up.
LEFT_OUT = ("python3 -m venv", "pip install", "nupa doctor")
#: Blocks that do not run here, and the reason; a name that ends in .py runs them.
NOT_RUN = {
    ("README.md", "make demo"): "make itself",
    ("README.md", "nupa net up"): "as the first of docs/netdev.md",
    ("README.md", "nupa vm demo"): "tests/unit/vm, and `make test-vm`: it takes minutes",
    ("docs/benchmarks.md", "raw_tap"): "it names a process of the reader",
    ("docs/benchmarks.md", "--benchmark-save"): "benchmarks",
    ("docs/c.md", "apt-get"): "it installs packages",
    ("docs/c.md", "gcc -Wall"): "tests/programs/rdmacm/test_quick_start.py",
    ("docs/c.md", "hello.pcapng"): "tests/programs/rdmacm/test_quick_start.py",
    ("docs/capture.md", "tcpdump"): "it captures on the machine's interfaces",
    ("docs/collectives.md", "allreduce"): "tests/unit/collectives/test_docs.py",
    ("docs/cxl.md", "nupa up"): "tests/unit/cxl/test_docs.py",
    ("docs/cxl.md", "nupa fabric registers dvsec"): "tests/unit/cli/test_registers.py",
    ("docs/ecosystem.md", "ucx_info"): "tests/ecosystem/test_ucx.py",
    ("docs/ecosystem.md", "mpirun"): "tests/ecosystem/test_mpi.py",
    ("docs/ecosystem.md", "tgtd"): "the disk and the machine are the reader's",
    ("docs/ecosystem.md", "valgrind"): "tests/ecosystem/test_debuggers.py",
    ("docs/faults.md", "add timeout"): "it stops a process of the reader",
    ("docs/netdev.md", "nupa net ls"): "tests/net/traffic: iperf3 runs for ten seconds",
    ("docs/netdev.md", "nupa run --net"): "tests/net/traffic: iperf3 runs for ten seconds",
    ("docs/netdev.md", "nupa vm run"): "it needs guests",
    ("docs/netdev.md", "ib_write_bw"): "tests/programs/verbs: perftest runs between hosts",
    ("docs/serve.md", "gpu24"): "tests/browser",
    ("docs/replay.md", "failure.pcapng"): "the program is the reader's",
    ("docs/replay.md", "x.pcapng"): "the program is the reader's",
    ("docs/verbs.md", "run_tests.py"): "tests/suites",
    ("docs/wire.md", "nupa wire ls"): "tests/wire/test_connections.py",
    ("docs/trunk.md", "nupa trunk down"): "tests/trunk/test_start.py",
    ("docs/trunk.md", "--ssh"): "tests/trunk/test_start.py",
    ("docs/trunk.md", "srun"): "tests/trunk/test_start.py",
    ("docs/trunk.md", "mpirun"): "tests/trunk/test_programs.py",
    ("docs/storage.md", "nupa vm storage nvme"): "tests/system/test_storage.py: it needs guests",
    ("docs/storage.md", "nupa demo storage"): "tests/ecosystem/test_storage.py",
    ("docs/kernel.md", "nupa vm up"): "tests/system/test_kernel.py",
    ("docs/kernel.md", "ibv_devinfo"): "tests/system/test_kernel_verbs.py",
    ("docs/vm.md", "nupa vm up"): "it needs guests",
    ("docs/vm.md", "ib_send_lat -R"): "it needs guests",
}


def blocks(kind: str) -> list[tuple[str, str]]:
    """Returns the blocks of all pages, each with its page."""
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    return [
        (page.relative_to(ROOT).as_posix(), text)
        for page in pages
        for text in re.findall(rf"```{kind}\n(.*?)```", page.read_text(), re.DOTALL)
    ]


BLOCKS = blocks("sh")


def find(page: str, words: str) -> str:
    """Returns the only block of a page with these words."""
    found = [text for where, text in BLOCKS if where == page and words in text]
    assert len(found) == 1, f"{page} has {len(found)} blocks with {words!r}"
    return found[0]


def script(text: str) -> str:
    """Returns a block with its servers in the background, each until it listens."""
    lines = [
        "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT",
        f"sleep() {{ command sleep $(({SLOWER} * $1)); }}",
    ]
    text = re.sub(r"--for (\d+)s", lambda found: f"--for {SLOWER * int(found[1])}s", text)
    for line in text.splitlines():
        if line.startswith(LEFT_OUT):
            continue
        if "on another terminal" in line:
            lines += [f"{line.partition('#')[0]} &", "sleep 1"]
        else:
            lines.append(line)
    return "\n".join(lines)


def test_each_block_runs_or_has_a_reason() -> None:
    known = [find(*block) for block in (*RUN, *NOT_RUN)]
    unknown = [f"{page}:\n{text}" for page, text in BLOCKS if text not in known]
    assert unknown == [], "add each to RUN, or to NOT_RUN with its reason"
    assert len(set(known)) == len(known)
    for reason in NOT_RUN.values():
        if reason.endswith(".py"):
            assert (ROOT / reason).exists(), reason


@pytest.fixture
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The programs' own ports, which only one block of all workers can have."""
    of_all_workers = tmp_path_factory.getbasetemp().parent
    with (of_all_workers / "ports-of-blocks").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("ports")
@pytest.mark.timeout(180)  # its turn and a block
@pytest.mark.parametrize("block", RUN, ids=lambda block: f"{block[0]}-{block[1]}")
def test_a_block_runs_as_it_is_written(
    block: tuple[str, str], folder: Path, tmp_path: Path
) -> None:
    text = find(*block)
    for program, package in (
        ("ibv_rc_pingpong", "ibverbs-utils"),
        ("ib_write_lat", "perftest"),
        ("ib_write_bw", "perftest"),
        ("rdma", "iproute2"),
        ("opensm", "opensm"),
        ("fi_pingpong", "libfabric-bin"),
        ("qperf", "qperf"),
    ):
        if f" {program} " in text:
            needs(program, package)
    nupa = tmp_path / "bin" / "nupa"
    nupa.parent.mkdir()
    nupa.write_text(f'#!/bin/sh\nexec {sys.executable} -m nupa "$@"\n')
    nupa.chmod(0o755)
    (tmp_path / "my_program").symlink_to("/bin/true")
    for page, table in blocks("toml"):
        if page == block[0]:
            (tmp_path / "lab.toml").write_text(table)
    found = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script(text)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{nupa.parent}:{os.environ['PATH']}:/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
        check=False,
    )
    subprocess.run([nupa, "down", "--all"], check=True)
    assert found.returncode == 0, f"{found.stdout}\n{found.stderr}"
    assert "Traceback" not in found.stderr
    assert list(folder.iterdir()) == []
