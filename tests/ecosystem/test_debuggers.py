# SPDX-License-Identifier: BSD-3-Clause
"""`nupa run` around the tools of programmers: gdb, strace, valgrind, sanitizers, shell scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nupa.programs.pair import ProgramOutcome, free_port
from tests.programs.needs import needs

from .lab import Lab

SOURCES = Path(__file__).with_name("c")
pytestmark = pytest.mark.timeout(120)


def pingpong_under(fabric: Lab, *tool: str, program: str = "ibv_rc_pingpong") -> ProgramOutcome:
    """Runs a server as it is and its client under *tool*, each to its end; returns the client's."""
    needs(program, "ibverbs-utils")
    port = free_port()
    command = [program, "-g", "1", "-n", "50", "-p", str(port)]
    result = fabric.pair(command, [*tool, *command, "localhost"], port=port).run().check()
    assert "50 iters in" in result.client.stdout
    return result.client


def test_gdb_stops_at_a_breakpoint_shows_a_backtrace_and_goes_on(fabric: Lab) -> None:
    commands = ["set breakpoint pending on", "break ibv_create_qp", "run", "backtrace", "continue"]
    batch = [part for command in commands for part in ("-ex", command)]
    output = pingpong_under(fabric, needs("gdb", "gdb"), "-q", "-batch", *batch, "--args").stdout
    assert re.search(r"hit Breakpoint 1.*ibv_create_qp", output)
    assert re.search(r"^#0 .*ibv_create_qp \(pd=0x[0-9a-f]+", output, re.MULTILINE)
    assert re.search(r"exited normally", output)


def test_strace_follows_a_script_and_its_children(fabric: Lab, tmp_path: Path) -> None:
    log = tmp_path / "log"
    node_type = "/sys/class/infiniband/nupa_rdma0/node_type"
    strace = [needs("strace", "strace"), "-f", "-o", str(log), "-e", "trace=execve,openat"]
    script = f"ibv_devices; cat {node_type}"
    output = fabric.must(fabric.on(None, *strace, "sh", "-c", script))
    assert "nupa_rdma0" in output
    assert "1: CA" in output
    traced = log.read_text()
    assert len(re.findall(r"\+\+\+ exited with 0 \+\+\+", traced)) == 3
    assert str(fabric.folder) in traced  # where the file really is


@pytest.mark.parametrize(
    "program", ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"]
)
def test_valgrind_finds_no_error_and_no_leak(fabric: Lab, program: str) -> None:
    memcheck = [needs("valgrind", "valgrind"), "--leak-check=full", "--error-exitcode=9"]
    errors = pingpong_under(fabric, *memcheck, program=program).stderr
    assert re.search(r"ERROR SUMMARY: 0 errors", errors), errors
    assert re.search(r"definitely lost: 0 bytes|no leaks are possible", errors), errors


def test_valgrind_finds_no_error_in_both_ends_of_events_and_large_messages(fabric: Lab) -> None:
    needs("ibv_rc_pingpong", "ibverbs-utils")
    memcheck = [needs("valgrind", "valgrind"), "--error-exitcode=9"]
    command = [*memcheck, "ibv_rc_pingpong", "-g", "1", "-n", "20", "-e", "-c", "-s", "102400"]
    result = fabric.run_pair(command)
    for end in (result.server, result.client):
        assert "ERROR SUMMARY: 0 errors" in end.stderr, end.describe()


def test_a_program_with_the_address_sanitizer_runs_and_leaks_nothing(fabric: Lab) -> None:
    program = fabric.compile(SOURCES / "loopback.c", "-libverbs", "-fsanitize=address,undefined")
    outcome = fabric.run(fabric.on(None, program))
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "100 exchanged\n", "")


def test_a_program_with_the_thread_sanitizer_runs_without_a_report(fabric: Lab) -> None:
    # Older ones do not start where addresses are randomised by more bits than they know.
    setarch = [needs("setarch", "util-linux"), "-R"]
    program = fabric.compile(SOURCES / "loopback.c", "-libverbs", "-fsanitize=thread")
    outcome = fabric.run(fabric.on(None, *setarch, program))
    if "personality" in outcome.stderr:
        pytest.skip("setarch -R is denied here")
    assert (outcome.returncode, outcome.stdout) == (0, "100 exchanged\n"), outcome.describe()


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("ASAN_OPTIONS", "verify_asan_link_order=0"),
        ("TSAN_OPTIONS", "ignore_noninstrumented_modules=1"),
    ],
)
def test_sanitizer_options_of_the_user_count_more_than_ours(
    fabric: Lab, name: str, ours: str
) -> None:
    options = fabric.must(fabric.on(None, "printenv", name), env={name: "a=1"})
    assert options == f"{ours}:a=1\n"


def test_scripts_pipelines_subshells_and_background_jobs_run(fabric: Lab) -> None:
    script = """
    set -e
    ibv_devices | grep -c nupa_rdma0
    (cd / && ibv_devinfo | grep -o 'PORT_ACTIVE') &
    wait $!
    for file in /sys/class/infiniband/*/node_type; do read -r kind < "$file"; echo "$kind"; done
    echo "$(cat /sys/class/infiniband/nupa_rdma0/ports/1/link_layer)" | tr a-z A-Z
    python3 -c 'import os; print(os.listdir("/sys/class/infiniband"))'
    """
    for shell in ("sh", "bash"):
        output = fabric.must(fabric.on(None, needs(shell, shell), "-c", script))
        lines = ["1", "PORT_ACTIVE", "1: CA", "ETHERNET", "['nupa_rdma0']"]
        assert output.splitlines() == lines, shell


def test_nupa_run_within_nupa_run_is_the_inner_one(fabric: Lab) -> None:
    inner = fabric.on("host2", "sh", "-c", "echo $NUPA_HOST; echo $LD_PRELOAD")
    host, preload = fabric.must(fabric.on("host1", *inner)).splitlines()
    assert host == "host2"
    names = [Path(path).name for path in preload.split(":")]
    assert names == ["libibverbs.so.1", "librdmacm.so.1", "libnupa_shim.so"]
