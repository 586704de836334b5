# SPDX-License-Identifier: BSD-3-Clause
"""Broken parts are shown, and `nupa net up` repairs them and nothing else."""

from __future__ import annotations

import json
import os
import select
import signal
from pathlib import Path

import pytest

from nupa.base.process import Process
from tests.net.lab import DEADLINE_S, Net, ip

PING = ["ping", "-c", "1", "-W", "5"]


def pump_of(net: Net, host: str = "host0") -> Process:
    (found,) = (entry["pump"] for entry in net.stored()["hosts"] if entry["name"] == host)
    return Process(*found)


def keeper_of(net: Net, host: str = "host0") -> Process:
    (found,) = (entry["netns"] for entry in net.stored()["hosts"] if entry["name"] == host)
    return Process(*found["holder"])


def kill(process: Process, number: int = signal.SIGKILL) -> None:
    """Kills it and waits until it is gone."""
    fd = process.open()
    assert fd is not None
    signal.pidfd_send_signal(fd, number)
    await_end(fd)


def await_end(pidfd: int) -> None:
    assert select.select([pidfd], [], [], DEADLINE_S)[0], "it does not end"
    os.close(pidfd)


def link(net: Net, host: str) -> dict[str, object]:
    """Returns `ip link` of the interface."""
    (found,) = json.loads(net.exec(host, ["ip", "-j", "link", "show", "nupa_net0"]).stdout)
    return dict(found)


def reachable(net: Net) -> None:
    net.exec("host0", [*PING, ip(1)])
    net.exec("host1", [*PING, ip(0)])


def test_a_second_net_up_says_so_and_changes_nothing(net_by_user: Net) -> None:
    before = net_by_user.stored()
    said = net_by_user.ok("net", "up").stdout
    assert said == "default: nupa_net0 is up already on its 2 hosts; nothing to do\n"
    assert net_by_user.stored() == before


def test_a_killed_pump_takes_the_carrier_and_is_replaced(net_by_user: Net) -> None:
    net = net_by_user
    # It lives in the namespace meanwhile, and goes on with the new pump.
    resident = net.start("host0", ["sh", "-c", "echo ready; read line < /dev/null; sleep 60"])
    resident.wait_said("ready", DEADLINE_S)
    before = net.stored()
    kill(pump_of(net))
    assert [entry["state"] for entry in net.ls()] == ["no pump", "no pump"]
    assert "NO-CARRIER" in link(net, "host0")["flags"]  # type: ignore[operator]
    # The fabric lives.
    assert net.nupa("run", "--", "true").ok
    done = net.ok("net", "up").stdout
    assert done == ("default: host0 is healed: a new pump\ndefault: host1 is healed: a new pump\n")
    after = net.stored()
    assert [entry["netns"] for entry in after["hosts"]] == [
        entry["netns"] for entry in before["hosts"]
    ]
    assert "NO-CARRIER" not in link(net, "host0")["flags"]  # type: ignore[operator]
    assert resident.running
    reachable(net)


def test_a_program_that_is_started_without_a_pump_is_told(net: Net) -> None:
    kill(pump_of(net), signal.SIGTERM)
    done = net.exec("host0", ["true"])
    assert done.stderr.startswith("nupa: the pump of host0 has ended (")
    assert "ends by SIGTERM): `nupa net up` starts a new one\n" in done.stderr
    assert net.exec("host0", ["true"], env={"NUPA_QUIET": "1"}).stderr == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_keeper_frees_everything_and_net_up_makes_it_anew(
    net_by_user: Net, number: int
) -> None:
    net = net_by_user
    pump = pump_of(net).open()
    assert pump is not None
    kill(keeper_of(net), number)
    await_end(pump)
    assert net.processes() == []
    assert [entry["state"] for entry in net.ls()] == ["no namespace", "no namespace"]
    refused = net.exec("host0", ["true"], check=False)
    assert refused.returncode == 1
    assert "is gone: `nupa net up` makes what is missing" in refused.stderr
    assert net.ok("net", "up").stdout.splitlines() == [
        f"default: {host} is healed: a new namespace: the former one was gone, made nupa_net0"
        for host in ("host0", "host1")
    ]
    reachable(net)


def test_an_interface_that_was_deleted_is_made_again_and_others_go_on(net: Net) -> None:
    first = pump_of(net, "host1")
    net.exec("host0", ["ip", "link", "del", "nupa_net0"])
    while net.state_of("host0") == "up":  # until the pump has seen it
        pass
    assert net.state_of("host1") == "up"
    assert net.ok("net", "up").stdout == ("default: host0 is healed: made nupa_net0, a new pump\n")
    assert pump_of(net, "host1") == first
    assert pump_of(net, "host0") != first
    reachable(net)


def test_what_was_set_otherwise_is_set_back(net_by_user: Net) -> None:
    net = net_by_user
    for command in (
        ["addr", "del", "10.0.0.1/24", "dev", "nupa_net0"],
        ["link", "set", "nupa_net0", "mtu", "1500", "address", "02:00:0a:00:00:77", "down"],
    ):
        net.exec("host0", ["ip", *command])
    said = net.ok("net", "up").stdout
    assert said.startswith(
        "default: host0 is healed: its MAC address is 02:00:0a:00:00:01, its MTU is 65280, "
        "it is up, it has 10.0.0.1"
    )
    assert "host1" not in said
    reachable(net)


def test_all_pumps_and_a_keeper_may_be_gone_at_once(down: Net) -> None:
    """Two calls, so two keepers and two pumps."""
    down.ok("net", "up", "--host", "host0")
    down.ok("net", "up", "--host", "host1")
    assert keeper_of(down, "host0") != keeper_of(down, "host1")
    kill(pump_of(down, "host1"))
    kill(keeper_of(down, "host0"))
    said = down.ok("net", "up").stdout.splitlines()
    assert [line.split(":", 2)[1].strip() for line in said] == [
        "host0 is healed",
        "host1 is healed",
    ]
    reachable(down)


def test_interfaces_of_a_former_fabric_are_replaced(net: Net) -> None:
    """Its segment was removed by other means, and another one made."""
    old = keeper_of(net)
    (net.folder / f"nupa-{net.user.uid}-default").unlink()
    assert [entry["state"] for entry in net.ls()] == ["no fabric", "no fabric"]
    refused = net.exec("host0", ["true"], check=False)
    assert "are of a former fabric of that name" in refused.stderr
    net.ok("net", "up")
    assert not old.alive
    reachable(net)


def test_a_damaged_state_is_said_and_net_down_takes_all_away(net: Net) -> None:
    (file,) = net.folder.glob(".nupa-*.net")
    of_another = json.dumps(json.loads(file.read_text()) | {"version": 99})
    for damage in ("", "[]", "{}", of_another):
        file.write_text(damage)
        refused = net.nupa("net", "up")
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"nupa: cannot read {file}: ")
        assert refused.stderr.endswith("`nupa net down --fabric default` takes it away\n")
    net.ok("net", "down")
    assert net.processes() == []
    assert net.ok("net", "ls").stdout == "no interface is up: `nupa net up` makes them\n"
    net.ok("net", "up")
    reachable(net)


def test_a_keeper_and_a_pump_hold_no_file_of_ours(net: Net) -> None:
    keeper, pump = keeper_of(net).pid, pump_of(net).pid
    for pid in (keeper, pump):
        files = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
        assert not [name for name in files if name.startswith("/dev/pts") or "(deleted)" in name]
        assert os.getsid(pid) not in (os.getsid(0), 0)
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    allowed = ("/dev/null", "net:[", "pipe:[")
    for fd in Path(f"/proc/{keeper}/fd").iterdir():
        assert str(fd.readlink()).startswith(allowed)
    status = Path(f"/proc/{keeper}/status").read_text()
    (size,) = (line.split()[1] for line in status.splitlines() if line.startswith("RssAnon"))
    assert int(size) < 512  # KiB


def test_signals_of_a_terminal_do_not_reach_the_pump(net: Net) -> None:
    """They go to the foreground's process group, which pump and keeper are not in."""
    for process in (pump_of(net), keeper_of(net)):
        assert os.getpgid(process.pid) != os.getpgid(0)
    reachable(net)
