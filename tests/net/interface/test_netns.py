# SPDX-License-Identifier: BSD-3-Clause
"""`--netns`: an interface in a namespace that exists, of a process or at a path."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nupa.base.process import Process
from tests.net.interface.test_up import refused
from tests.net.lab import DEADLINE_S, Net, ip

PING = ["ping", "-c", "1", "-W", "5"]


class Box:
    """A process in a network namespace of its own, as a container has it; *setup* is run in it."""

    def __init__(self, net: Net, setup: str = "ip link set lo up") -> None:
        own = ["unshare", "-n"] if net.user.uid == 0 else ["unshare", "-Urn"]
        self.process = subprocess.Popen(
            [*net.user.prefix, *own, "sh", "-c", f"{setup}; echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    @property
    def pid(self) -> str:
        return str(self.process.pid)

    def interfaces(self) -> list[str]:
        lines = Path(f"/proc/{self.pid}/net/dev").read_text().splitlines()[2:]
        return sorted(line.partition(":")[0].strip() for line in lines)

    def end(self) -> None:
        self.process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def make_box() -> Iterator[Callable[..., Box]]:
    with ExitStack() as stack:

        def make(net: Net, *setup: str) -> Box:
            box = Box(net, *setup)
            stack.callback(box.end)
            return box

        yield make


@pytest.fixture
def named() -> Iterator[Path]:
    """A namespace with a name, of ip-netns(8)."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a namespace a name")
    name = f"nupa-test-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield Path("/run/netns") / name
    subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def pump_of(net: Net, host: str) -> Process:
    (found,) = (entry["pump"] for entry in net.stored()["hosts"] if entry["name"] == host)
    return Process(*found)


def await_end(process: Process) -> None:
    fd = process.open()
    if fd is not None:
        assert select.select([fd], [], [], DEADLINE_S)[0], "it does not end"
        os.close(fd)


def test_the_interface_of_a_host_goes_into_the_namespace_of_a_process(
    by_user: Net, make_box: Callable[..., Box]
) -> None:
    net, box = by_user, make_box(by_user)
    net.ok("up")
    net.ok("net", "up", "--host", "host1", "--netns", box.pid)
    net.ok("net", "up")  # the rest, in a namespace of its own
    assert box.interfaces() == ["lo", "nupa_net0"]
    net.exec("host0", [*PING, ip(1)])
    net.exec("host1", [*PING, ip(0)])
    # Only the interface is ours to take away.
    net.ok("net", "down")
    assert box.interfaces() == ["lo"]
    assert box.process.poll() is None


def test_the_interface_of_a_host_goes_into_a_namespace_with_a_name(down: Net, named: Path) -> None:
    down.ok("net", "up", "--host", "host0", "--netns", str(named))
    down.ok("net", "up", "--host", "host0", "--netns", str(named))
    down.ok("net", "up")
    subprocess.run(["ip", "netns", "exec", named.name, *PING, ip(1)], check=True)
    assert next(entry["netns"] for entry in down.ls()) == str(named)


def test_a_pump_ends_with_the_process_that_had_the_namespace(
    down: Net, make_box: Callable[..., Box]
) -> None:
    box = make_box(down)
    down.ok("net", "up", "--host", "host0", "--netns", box.pid)
    down.ok("net", "up")
    box.end()
    await_end(pump_of(down, "host0"))
    assert [entry["state"] for entry in down.ls()] == ["no namespace", "up"]
    said = down.nupa("net", "up")
    assert said.returncode == 1
    assert said.stderr == (
        f"nupa: host0: its network namespace /proc/{box.pid}/ns/net is gone: "
        "`nupa net up --host host0 --netns PATH|PID` moves it to another one\n"
    )
    other = make_box(down)
    down.ok("net", "up", "--host", "host0", "--netns", other.pid)
    down.exec("host0", [*PING, ip(1)])


def test_a_namespace_with_a_name_that_is_made_again_gets_its_interface_again(
    down: Net, named: Path
) -> None:
    down.ok("net", "up", "--host", "host0", "--netns", str(named))
    down.ok("net", "up")
    subprocess.run(["ip", "netns", "del", named.name], check=True)
    await_end(pump_of(down, "host0"))
    assert down.state_of("host0") == "no namespace"
    subprocess.run(["ip", "netns", "add", named.name], check=True)
    down.ok("net", "up")
    down.exec("host0", [*PING, ip(1)])


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        ("ip tuntap add dev nupa_net0 mode tap", "an interface nupa_net0 is in this"),
        (
            "ip tuntap add dev t0 mode tap; ip addr add 10.0.0.1/32 dev t0",
            "10.0.0.1/32 of t0 is in this namespace already, and overlaps the fabric's 10.0.0.0/24",
        ),
        (
            "ip tuntap add dev t0 mode tap; ip addr add 10.0.77.1/16 dev t0",
            "10.0.77.1/16 of t0 is in this namespace already",
        ),
        (
            "ip tuntap add dev t0 mode tap; ip addr add fd4e:5550:4100::9/64 dev t0",
            "fd4e:5550:4100::9/64 of t0 is in this namespace already",
        ),
    ],
)
def test_what_is_there_already_is_refused_and_stays(
    down: Net, make_box: Callable[..., Box], setup: str, why: str
) -> None:
    box = make_box(down, setup)
    before = box.interfaces()
    assert why in refused(down, "net", "up", "--host", "host0", "--netns", box.pid)
    assert box.interfaces() == before
    assert down.left() == []


def test_a_namespace_without_ipv6_gets_ipv4(down: Net, make_box: Callable[..., Box]) -> None:
    """As many containers have it."""
    box = make_box(down, "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
    down.ok("net", "up", "--host", "host0", "--netns", box.pid)
    assert [entry["addresses"] for entry in down.ls()] == [["10.0.0.1"]]
    assert "nothing to do" in down.ok("net", "up", "--host", "host0").stdout


def test_two_hosts_do_not_share_a_namespace(down: Net, make_box: Callable[..., Box]) -> None:
    box = make_box(down)
    down.ok("net", "up", "--host", "host0", "--netns", box.pid)
    assert "is not this host's" in refused(down, "net", "up", "--host", "host1", "--netns", box.pid)
    assert box.interfaces() == ["lo", "nupa_net0"]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("4194304", "no process has the pid 4194304"),
        ("/nowhere", "cannot open the network namespace /nowhere: No such file or directory"),
        ("/proc/self/ns/uts", "/proc/self/ns/uts is not a network namespace"),
        ("/dev/null", "/dev/null is not a network namespace"),
    ],
)
def test_what_is_no_namespace_is_refused(down: Net, where: str, why: str) -> None:
    assert why in refused(down, "net", "up", "--host", "host0", "--netns", where)
    assert down.left() == []


def test_a_namespace_of_another_user_is_refused(
    make_net: Callable[..., Net], nobody: object, make_box: Callable[..., Box]
) -> None:
    theirs = make_net(nobody)
    box = make_box(make_net())
    said = refused(theirs, "net", "up", "--host", "host0", "--netns", box.pid)
    assert "cannot open the network namespace" in said
    assert "Permission denied" in said
    assert theirs.left() == []
