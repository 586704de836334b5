# SPDX-License-Identifier: BSD-3-Clause
"""The pump's process: readiness, signals, exit codes.  A socket stands in for the TAP device."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.topology.topology import star

DEADLINE_S = 30
PUMP = (sys.executable, "-P", "-m", "nupa.netdev.pump")


@pytest.fixture
def fabric(folder: Path) -> Iterator[Fabric]:  # noqa: ARG001
    with Fabric.create("lab", star(2)) as made:
        yield made
    Fabric.remove("lab")


class Started:
    """A pump of *hosts*, one socket each; the other ends are *kernel*."""

    def __init__(self, fabric: Fabric, *hosts: int, generation: str | None = None) -> None:
        with ExitStack() as theirs:
            self.parent, child = socket.socketpair()
            theirs.enter_context(child)
            self.parent.settimeout(DEADLINE_S)
            self.kernel = []
            words, fds = [], [child.fileno()]
            for host in hosts:
                here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                theirs.enter_context(there)
                self.kernel.append(here)
                fds.append(there.fileno())
                words.append(f"{host}:1500:{there.fileno()}")
            ours, holder = os.pipe()
            self.holder = holder  # its end closes as a process ends
            options = {
                "--folder": os.environ["NUPA_DIR"],
                "--fabric": fabric.name,
                "--segment": fabric.path,
                "--generation": generation or fabric.generation,
                "--parent": str(child.fileno()),
                "--holder": str(ours),
            }
            self.process = subprocess.Popen(
                [*PUMP, *(word for option in options.items() for word in option), *words],
                pass_fds=[*fds, ours],
                stderr=subprocess.PIPE,
                text=True,
            )
            os.close(ours)

    def answer(self) -> str:
        return self.parent.recv(4096).decode()

    def go(self) -> None:
        assert self.answer() == "ready"
        self.parent.send(b"g")
        assert self.parent.recv(1) == b""  # it has closed its end

    def end(self) -> tuple[int, str]:
        """Returns its exit code, and the last line of its log without date and pid."""
        _, log = self.process.communicate(timeout=DEADLINE_S)
        self.close()
        lines = [line.partition(": ")[2] for line in log.splitlines()]
        return self.process.returncode, lines[-1] if lines else ""

    def close(self) -> None:
        for end in (self.parent, *self.kernel):
            end.close()
        if self.holder >= 0:
            os.close(self.holder)
            self.holder = -1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(fabric: Fabric, number: signal.Signals) -> None:
    pump = Started(fabric, 0, 1)
    pump.go()
    served = [(slot.pid, slot.host, slot.net_queue) for slot in fabric.processes()]
    assert served == [(pump.process.pid, 0, 1), (pump.process.pid, 1, 1)]
    assert {slot.comm for slot in fabric.processes()} == {"nupa-pump"}
    pump.process.send_signal(number)
    assert pump.end() == (0, f"ends by {number.name}")
    assert fabric.processes() == []


def test_the_end_of_what_holds_the_namespaces_ends_it(fabric: Fabric) -> None:
    pump = Started(fabric, 0)
    pump.go()
    os.close(pump.holder)
    pump.holder = -1
    assert pump.end() == (0, "the namespaces are gone: ends")


def test_it_ends_with_its_last_interface(fabric: Fabric) -> None:
    pump = Started(fabric, 0, 1)
    pump.go()
    pump.kernel[0].close()
    while {slot.host for slot in fabric.processes()} != {1}:
        assert pump.process.poll() is None
    pump.kernel[1].close()
    assert pump.end() == (3, "no interface is left: ends")


def test_a_parent_that_is_gone_before_its_word_ends_it(fabric: Fabric) -> None:
    pump = Started(fabric, 0)
    assert pump.answer() == "ready"
    pump.parent.close()
    assert pump.end()[0] == 1
    assert fabric.processes() == []


def test_a_signal_before_the_word_of_the_parent_ends_it(fabric: Fabric) -> None:
    pump = Started(fabric, 0)
    assert pump.answer() == "ready"
    pump.process.terminate()
    assert pump.end()[0] == 1


def test_a_fabric_of_another_generation_is_refused(fabric: Fabric) -> None:
    pump = Started(fabric, 0, generation="0" * 16)
    assert pump.answer() == "error the fabric 'lab' was replaced by another"
    assert pump.end() == (1, "the fabric 'lab' was replaced by another")


def test_a_host_that_is_served_already_is_refused(fabric: Fabric) -> None:
    first = Started(fabric, 0)
    first.go()
    second = Started(fabric, 0)
    assert second.answer().startswith("error cannot serve host0: ")
    assert second.end()[0] == 1
    first.process.terminate()
    assert first.end()[0] == 0


def test_a_host_that_does_not_exist_is_refused(fabric: Fabric) -> None:
    pump = Started(fabric, 7)
    assert pump.answer().startswith("error the fabric 'lab' has no host 7")
    assert pump.end()[0] == 1


def test_a_wrong_command_line_is_2() -> None:
    for words in ([], ["--fabric", "x", "1:2"]):
        done = subprocess.run([*PUMP, *words], capture_output=True, timeout=DEADLINE_S)
        assert done.returncode == 2
