# SPDX-License-Identifier: BSD-3-Clause
"""README.md and docs: each block of commands runs as it is written, or has a reason.

A line that says "on another terminal" has a server, which runs beside the lines behind it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.needs import needs

ROOT = Path(__file__).parents[3]
#: Blocks that run here, by page and number, and the line with which they begin.
RUN = {
    ("README.md", 1): "nupa up --fabric lab",
    ("README.md", 4): "",
    ("README.md", 5): "",
    ("docs/faults.md", 0): "",
    ("docs/ecosystem.md", 2): "",
    ("docs/ecosystem.md", 3): "",
    ("docs/ecosystem.md", 4): "",
    ("docs/topology.md", 0): "",
    ("docs/topology.md", 1): "",
}
#: Blocks that do not, and the reason; a name that ends in .py runs them.
NOT_RUN = {
    ("README.md", 0): "make itself",
    ("README.md", 2): "as the first of docs/netdev.md",
    ("README.md", 3): "tests/unit/vm, and `make test-vm`: it takes minutes",
    ("docs/benchmarks.md", 0): "it names a process of the reader",
    ("docs/benchmarks.md", 1): "benchmarks",
    ("docs/c.md", 0): "it installs packages",
    ("docs/c.md", 1): "tests/programs/rdmacm/test_quick_start.py",
    ("docs/c.md", 2): "tests/programs/rdmacm/test_quick_start.py",
    ("docs/capture.md", 0): "it captures on the machine's interfaces",
    ("docs/collectives.md", 0): "tests/unit/collectives/test_docs.py",
    ("docs/cxl.md", 0): "tests/unit/cxl/test_docs.py",
    ("docs/cxl.md", 1): "tests/unit/cli/test_registers.py",
    ("docs/ecosystem.md", 0): "tests/ecosystem/test_ucx.py",
    ("docs/ecosystem.md", 1): "tests/ecosystem/test_mpi.py",
    ("docs/ecosystem.md", 5): "tests/ecosystem/test_debuggers.py",
    ("docs/faults.md", 1): "it stops a process of the reader",
    ("docs/netdev.md", 0): "tests/net/traffic: iperf3 runs for ten seconds",
    ("docs/netdev.md", 1): "it needs guests",
    ("docs/netdev.md", 2): "tests/programs/verbs: perftest runs between hosts",
    ("docs/replay.md", 0): "the program is the reader's; README.md's fifth has the same",
    ("docs/replay.md", 1): "the program is the reader's; README.md's fifth has the same",
    ("docs/vm.md", 0): "it needs guests",
    ("docs/vm.md", 1): "it needs guests",
}


def blocks(kind: str) -> dict[tuple[str, int], str]:
    """Returns the blocks of all pages."""
    found = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        texts = re.findall(rf"```{kind}\n(.*?)```", page.read_text(), re.DOTALL)
        for number, text in enumerate(texts):
            found[page.relative_to(ROOT).as_posix(), number] = text
    return found


BLOCKS = blocks("sh")


def script(text: str) -> str:
    """Returns a block with its servers in the background, each until it listens."""
    lines = ["trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for line in text.splitlines():
        if "on another terminal" in line:
            lines += [f"{line.partition('#')[0]} &", "sleep 1"]
        else:
            lines.append(line)
    return "\n".join(lines)


def test_each_block_runs_or_has_a_reason() -> None:
    assert RUN.keys() | NOT_RUN.keys() == BLOCKS.keys()
    assert not RUN.keys() & NOT_RUN.keys()
    for reason in NOT_RUN.values():
        if reason.endswith(".py"):
            assert (ROOT / reason).exists(), reason


@pytest.mark.parametrize("block", RUN, ids=lambda block: f"{block[0]}-{block[1]}")
def test_a_block_runs_as_it_is_written(
    block: tuple[str, int], folder: Path, tmp_path: Path
) -> None:
    text = BLOCKS[block]
    text = text[text.index(RUN[block]) :]
    for program, package in (
        ("ibv_rc_pingpong", "ibverbs-utils"),
        ("ib_write_lat", "perftest"),
        ("ib_write_bw", "perftest"),
        ("rdma", "iproute2"),
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
    for page, table in blocks("toml").items():
        if page[0] == block[0]:
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
