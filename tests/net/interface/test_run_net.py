# SPDX-License-Identifier: BSD-3-Clause
"""`nupa run --net`: both devices of a host in one word, as long as it has users."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

from nupa.base.process import Process
from nupa.programs.pair import Program
from tests.net.lab import DEADLINE_S, Net, ip
from tests.programs.needs import needs

WAITS = ("sh", "-c", "echo up; read line || :")


def run_net(net: Net, host: str, *command: str) -> list[str]:
    return net.argv("run", "--net", "--host", host, "--", *command)


class User:
    """A `nupa run --net` that runs until end() or kill()."""

    def __init__(self, net: Net, host: str, *argv: str) -> None:
        self.process = subprocess.Popen(
            list(argv) or run_net(net, host, *WAITS),
            env={**os.environ, **net.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"

    def end(self) -> None:
        self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=DEADLINE_S)


def gone(processes: list[Process]) -> None:
    """Waits until they have ended."""
    for process in processes:
        fd = process.open()
        if fd is not None:
            assert select.select([fd], [], [], DEADLINE_S)[0]
            os.close(fd)


def test_a_program_has_both_devices_and_nothing_is_left(by_user: Net) -> None:
    script = "cat /sys/class/net/nupa_net0/address /sys/class/infiniband/nupa_rdma0/node_type"
    outcome = by_user.run(run_net(by_user, "host1", "sh", "-c", script)).check()
    assert outcome.stdout.splitlines() == ["02:00:0a:00:00:02", "1: CA"]
    assert by_user.left() == []


def test_two_hosts_reach_each_other_by_name(by_user: Net) -> None:
    iperf3 = needs("iperf3", "iperf3")
    server = Program(run_net(by_user, "host1", iperf3, "-s", "-1", "--forceflush"), env=by_user.env)
    by_user.started.append(server)
    server.wait_said("Server listening", DEADLINE_S)
    client = run_net(by_user, "host0", iperf3, "-n", "1M", "-c", "host1")
    assert "Connecting to host host1" in by_user.run(client).check().stdout
    assert f"Accepted connection from {ip(0)}" in server.wait(DEADLINE_S).check().stdout
    assert by_user.left() == []


def test_the_last_user_removes_it(down: Net) -> None:
    first = User(down, "host0")
    second = User(down, "host0")
    (netns,) = {entry["netns"] for entry in down.ls()}
    first.end()
    assert [(entry["netns"], entry["state"]) for entry in down.ls()] == [(netns, "up")]
    shell = User(down, "host0", *down.argv_on("host0", WAITS, shell=True))
    second.end()
    assert down.state_of("host0") == "up"
    shell.end()
    assert down.left() == []


def test_users_that_are_killed_leave_no_process(down: Net) -> None:
    first, second = User(down, "host0"), User(down, "host0")
    processes = down.processes()
    assert len(processes) == 2
    first.kill()
    assert down.state_of("host0") == "up"
    second.kill()
    gone(processes)
    # The fabric had no other user: what is left of both is files.
    again = User(down, "host0")
    assert down.state_of("host0") == "up"
    again.end()
    assert down.left() == []


def test_an_interface_that_is_up_is_used_and_stays(net: Net) -> None:
    before = net.stored()
    net.run(run_net(net, "host0", "ping", "-c", "1", "-W", "5", ip(1))).check()
    assert net.stored() == before


def test_net_up_lets_it_stay(down: Net) -> None:
    user = User(down, "host0")
    down.ok("net", "up", "--host", "host0")
    user.end()
    assert down.state_of("host0") == "up"
    down.ok("net", "down")


def test_a_program_that_dies_leaves_nothing(down: Net) -> None:
    outcome = down.run(run_net(down, "host0", "sh", "-c", "kill -SEGV $$"))
    assert outcome.returncode == -signal.SIGSEGV
    assert down.run(run_net(down, "host0", "/nowhere/program")).returncode == 127
    assert down.left() == []


def test_a_host_that_is_missing_is_said_and_leaves_nothing(down: Net) -> None:
    outcome = down.run(run_net(down, "host7", sys.executable, "-c", "pass"))
    assert (outcome.returncode, outcome.stderr.count("\n")) == (1, 1)
    assert down.left() == []
