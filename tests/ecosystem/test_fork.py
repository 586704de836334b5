# SPDX-License-Identifier: BSD-3-Clause
"""fork and exec of programs that have the device open: man ibv_fork_init, and what peers see."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .lab import Lab

SOURCES = Path(__file__).with_name("c")
FLUSHED = "Work Request Flushed Error"
RETRY_EXCEEDED = "transport retry counter exceeded"


class Partner:
    """c/partner.c on a host: says one line for each that it is told."""

    def __init__(self, lab: Lab, program: str, host: str, *prefix: str) -> None:
        self.process = subprocess.Popen(
            [*prefix, *lab.on(host, program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **lab.env},
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.hear()

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def partners(lab: Lab, *prefix: str) -> Iterator[tuple[Partner, Partner]]:
    """Yields two that are connected; *prefix* goes before the command of the second."""
    program = lab.compile(SOURCES / "partner.c", "-libverbs")
    both = Partner(lab, program, "host0"), Partner(lab, program, "host1", *prefix)
    try:
        addresses = [partner.ask("address") for partner in both]
        for partner, address in zip(both, reversed(addresses), strict=True):
            assert partner.ask(f"connect {address}") == "connected"
        assert both[1].ask("receive") == "posted"
        assert both[0].ask("send") == "success"
        assert both[1].ask("wait") == "success"
        yield both
    finally:
        for partner in both:
            partner.end()


def attached(lab: Lab) -> list[int]:
    return [process["pid"] for host in lab.show()["hosts"] for process in host["processes"]]


def test_what_the_man_page_promises_of_fork_holds(fabric: Lab) -> None:
    program = fabric.compile(SOURCES / "forks.c", "-libverbs")
    assert fabric.must(fabric.on(None, program)).splitlines() == [
        "the child has its copy",
        "the parent goes on",
        "a child that runs another program harms no process",
        "a child may close what it inherited",
        "a child that attaches anew talks to its parent",
    ]


def test_a_partner_that_runs_another_program_fails_its_peers_at_once(fabric: Lab) -> None:
    with partners(fabric) as (stays, goes):
        assert stays.ask("receive") == "posted"
        goes.tell("exec")
        assert stays.ask("wait") == FLUSHED
        # Its pid lives on, as that of cat.
        assert goes.ask("meow") == "meow"
        assert len(attached(fabric)) == 1


def test_a_request_to_a_program_that_is_no_more_exceeds_its_retries(fabric: Lab) -> None:
    with partners(fabric) as (stays, goes):
        goes.tell("exec")
        assert goes.ask("meow") == "meow"
        # Done on the spot or seen to be too late: an error in either case, never a success.
        assert stays.ask("send") in (RETRY_EXCEEDED, FLUSHED)


def test_a_slot_is_free_when_its_program_runs_another_one(fabric: Lab) -> None:
    program = fabric.compile(SOURCES / "partner.c", "-libverbs")
    alone = Partner(fabric, program, "host0")
    assert alone.ask("address")
    assert len(attached(fabric)) == 1
    alone.tell("exec")
    assert alone.ask("meow") == "meow"
    assert attached(fabric) == []
    alone.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_that_outlives_its_parent_does_not_keep_it_alive_for_peers(
    fabric: Lab, number: signal.Signals
) -> None:
    with partners(fabric) as (stays, goes):
        assert stays.ask("receive") == "posted"
        child = int(goes.ask("fork"))
        os.kill(parent_of(child), number)
        assert stays.ask("wait") == FLUSHED
        assert len(attached(fabric)) == 1


def parent_of(pid: int) -> int:
    """Returns field 4 of /proc/PID/stat (proc(5))."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")


def can_unshare() -> bool:
    return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="no new pid namespaces here: unshare --pid is denied")
def test_processes_of_two_pid_namespaces_reach_each_other_and_see_each_other_end(
    fabric: Lab,
) -> None:
    with partners(fabric, *NAMESPACE) as (outside, inside):
        # Neither takes the other one's attachment for that of a dead process.
        assert len(attached(fabric)) == 2
        movers = {end["mover"] for end in fabric.show()["movers"]}
        assert movers == {"relay"}
        for one, other in ((outside, inside), (inside, outside)):
            assert one.ask("receive") == "posted"
            assert other.ask("send") == "success"
            assert one.ask("wait") == "success"
        assert outside.ask("receive") == "posted"
        (first,) = children_of(inside.process.pid)
        os.kill(first, signal.SIGKILL)  # with whom the kernel kills all of the namespace
        assert outside.ask("wait") == FLUSHED
        assert len(attached(fabric)) == 1


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if parent_of(int(entry.name)) == pid:
                    found.append(int(entry.name))
            except FileNotFoundError:
                continue
    return found
