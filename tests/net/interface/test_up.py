# SPDX-License-Identifier: BSD-3-Clause
"""`nupa net up` and `down`: what is made, what is refused, what goes with what."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.net.lab import DEADLINE_S, Net, ip
from tests.programs.users import User

PING = ["ping", "-c", "1", "-W", "5"]


def fabrics(net: Net) -> list[str]:
    return [entry["name"] for entry in json.loads(net.ok("ls", "--json").stdout)]


def refused(net: Net, *arguments: str) -> str:
    """Returns the message of a command that fails, which is one line."""
    outcome = net.nupa(*arguments)
    assert outcome.returncode == 1, outcome.describe()
    assert outcome.stderr.startswith("nupa: ")
    assert outcome.stderr.count("\n") == 1
    return outcome.stderr


def test_a_fabric_that_net_up_made_goes_with_net_down(by_user: Net) -> None:
    assert by_user.ok("net", "up").stdout.splitlines() == [
        "default: nupa_net0 is up on host0 (10.0.0.1), host1 (10.0.0.2); MTU 65280",
        "the fabric default was made for it: `nupa net down` removes it",
    ]
    assert fabrics(by_user) == ["default"]
    by_user.ok("net", "down")
    assert fabrics(by_user) == []
    assert by_user.left() == []


def test_a_fabric_that_was_up_stays_when_its_interfaces_go(down: Net) -> None:
    down.ok("up")
    down.ok("net", "up")
    down.ok("net", "down")
    assert fabrics(down) == ["default"]
    assert down.processes() == []
    down.ok("down")


def test_a_fabric_that_net_up_made_stays_while_programs_use_it(down: Net) -> None:
    down.ok("net", "up")
    program = down.start("host0", ["sh", "-c", "echo ready; sleep 60"], shell=True)
    program.wait_said("ready", DEADLINE_S)
    said = down.ok("net", "down").stdout
    assert said.startswith("the fabric default stays: it is in use by ")
    assert f"(pid {program.pid}) for sh (pid " in said
    assert program.running
    assert fabrics(down) == ["default"]


def test_the_interface_goes_from_programs_that_stay(net: Net) -> None:
    program = net.start("host0", ["sh", "-c", "echo ready; sleep 60"])
    program.wait_said("ready", DEADLINE_S)
    pid = int(net.run(["sh", "-c", f"cat /proc/{program.pid}/task/{program.pid}/children"]).stdout)
    net.ok("net", "down")
    seen = net.run(["nsenter", "-t", str(pid), "-m", "-n", "ls", "/sys/class/net"])
    assert seen.stdout == "lo\n"


def test_nupa_down_takes_the_interfaces_with_the_fabric(net_by_user: Net) -> None:
    net_by_user.ok("down")
    assert net_by_user.left() == []


def test_nupa_down_refuses_while_programs_run_inside(net: Net) -> None:
    program = net.start("host0", ["sh", "-c", "echo ready; sleep 60"])
    program.wait_said("ready", DEADLINE_S)
    pid = int(net.run(["sh", "-c", f"cat /proc/{program.pid}/task/{program.pid}/children"]).stdout)
    assert f"(pid {program.pid}) for sh (pid {pid}): end" in refused(net, "down")
    net.exec("host0", [*PING, ip(1)])
    net.ok("down", "--force")
    assert net.left() == []


def test_interfaces_without_a_fabric_go_with_nupa_down_too(net: Net) -> None:
    (net.folder / f"nupa-{net.user.uid}-default").unlink()
    net.ok("down", "--all")
    assert net.left() == []


def test_nupa_up_sweeps_what_a_former_fabric_left(net: Net) -> None:
    (net.folder / f"nupa-{net.user.uid}-default").unlink()
    net.ok("up")
    assert net.processes() == []
    assert net.ok("net", "ls").stdout == "no interface is up: `nupa net up` makes them\n"


def test_several_fabrics_do_not_collide(down: Net) -> None:
    for name in ("one", "two"):
        down.ok("up", "--name", name)
        down.ok("net", "up", "--fabric", name)
    for name in ("one", "two"):
        ping = down.argv("net", "exec", "--fabric", name, "host0", "--", *PING, ip(1))
        assert down.run(ping).ok
    assert "name one with --fabric" in refused(down, "net", "exec", "host0", "--", "true")
    down.ok("down", "one")
    ping = down.argv("net", "exec", "host0", "--", *PING, ip(1))
    assert down.run(ping).ok
    assert [entry["fabric"] for entry in down.ls()] == ["two", "two"]


def test_fabrics_that_go_up_at_once_do_not_collide(down: Net) -> None:
    down.ok("up")
    env = {**os.environ, **down.env}
    running = [
        subprocess.Popen(down.argv("net", "up"), env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = sorted(process.communicate(timeout=DEADLINE_S)[0] for process in running)
    assert [line.split(";")[0] for line in said] == [
        "default: nupa_net0 is up already on its 2 hosts",
        "default: nupa_net0 is up already on its 2 hosts",
        "default: nupa_net0 is up on host0 (10.0.0.1), host1 (10.0.0.2)",
    ]
    assert len(down.processes()) == 2


def test_a_pump_is_no_program_that_keeps_a_host_busy(net: Net) -> None:
    env = {**os.environ, **net.env}
    run = net.argv("run", "--", "sh", "-c", "echo $NUPA_HOST; read x")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    programs = [subprocess.Popen(run, env=env, text=True, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    hosts = [program.stdout.readline().strip() for program in programs]
    for program in programs:
        program.communicate(timeout=DEADLINE_S)
    assert sorted(hosts) == ["host0", "host1"]


def test_options_are_seen_on_the_interface(down: Net) -> None:
    down.ok("net", "up", "--mtu", "9000", "--queues", "2")
    script = "cat /sys/class/net/nupa_net0/mtu; ls -d /sys/class/net/nupa_net0/queues/rx-*"
    seen = down.exec("host1", ["sh", "-c", script]).stdout.split()
    assert seen[0] == "9000"
    assert len(seen) == 3
    assert {(entry["mtu"], entry["queues"]) for entry in down.ls()} == {(9000, 2)}
    down.exec("host0", ["ping", "-c", "1", "-W", "5", "-M", "do", "-s", "8972", ip(1)])


def test_the_smallest_mtu_has_no_ipv6(down: Net) -> None:
    down.ok("net", "up", "--mtu", "68")
    assert [entry["addresses"] for entry in down.ls()] == [["10.0.0.1"], ["10.0.0.2"]]
    down.exec("host0", ["ping", "-c", "1", "-W", "5", "-s", "40", ip(1)])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--mtu", "67"], "an MTU of 67 bytes: nupa_net0 takes 68 to 65280"),
        (["--mtu", "65281"], "an MTU of 65281 bytes"),
        (["--queues", "0"], "0 queues: an interface has 1 to 16"),
        (["--queues", "17"], "17 queues"),
        (["--host", "host7"], "no host 'host7': its hosts are host0, host1"),
        (["--fabric", "other"], "no fabric is named 'other'"),
        (["--netns", "1"], "--netns is for the interface of one host: name it with --host"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(
    down: Net, options: list[str], why: str
) -> None:
    assert why in refused(down, "net", "up", *options)
    assert down.left() == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--mtu", "1500"], "up with an MTU of 65280, not 1500: `nupa net down` first"),
        (["--queues", "2"], "up with queues: 1, not 2: `nupa net down` first"),
        (["--host", "host0", "--netns", str(os.getpid())], "is up with the namespace /proc/"),
    ],
)
def test_what_is_up_is_not_changed(net: Net, options: list[str], why: str) -> None:
    before = net.stored()
    assert why in refused(net, "net", "up", *options)
    assert net.stored() == before


def test_commands_say_when_there_is_nothing(down: Net) -> None:
    assert "`nupa net up --fabric default` makes them" in refused(down, "net", "down")
    assert "has no interfaces" in refused(down, "net", "exec", "host0", "--", "true")
    assert "has no interfaces" in refused(down, "shell", "host0")
    assert down.ok("net", "ls", "--json").stdout == "[]\n"
    down.ok("net", "up", "--host", "host0")
    assert "no interface is up for the host 'host1' of 'default'; up are: host0" in refused(
        down, "net", "exec", "host1", "--", "true"
    )


def test_show_has_interfaces_and_their_counters(net: Net) -> None:
    net.exec("host0", [*PING, ip(1)])
    shown = json.loads(net.ok("show", "--json").stdout)
    assert [entry["host"] for entry in shown["interfaces"]] == ["host0", "host1"]
    assert all(entry["counters"]["tx_packets"] > 0 for entry in shown["interfaces"])
    text = net.ok("show").stdout
    assert "nupa_net0 of host1" in text
    assert json.loads(net.ok("ls", "--json").stdout)[0]["interfaces"] == 2


def test_a_port_that_is_down_is_seen(net: Net) -> None:
    net.ok("port", "host1", "down")
    assert [net.state_of(host) for host in ("host0", "host1")] == ["up", "port down"]
    net.ok("port", "host1", "up")
    assert net.state_of("host1") == "up"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_moment_leaves_all_or_nothing(
    make_net: Callable[..., Net], number: int
) -> None:
    """At several moments of its 0.4 s, each told by what is there: the segment, then the log of a
    pump, then the state."""
    for pattern in ("nupa-*", ".nupa-*.log", ".nupa-*.net"):
        net = make_net()
        env = {**os.environ, **net.env}
        process = subprocess.Popen(
            net.argv("net", "up"), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not list(net.folder.glob(pattern)) and process.poll() is None:
            pass
        process.send_signal(number)
        code = process.wait(DEADLINE_S)
        # -number: after all was done, as the interpreter ended.
        assert code in (0, 128 + number, -number)
        if net.left() == []:
            assert code == 128 + number
        else:
            net.exec("host0", [*PING, ip(1)])


def test_a_pump_that_does_not_start_leaves_nothing(down: Net, tmp_path: Path) -> None:
    """The namespaces and interfaces were there by then, and a fabric that was made for them."""
    broken = (
        "import os, sys\n"
        "if 'nupa.netdev.pump' in sys.orig_argv:\n"
        "    os.write(2, b'it is broken\\n')\n"
        "    os._exit(1)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(broken)
    outcome = down.run(down.argv("net", "up"), env={"PYTHONPATH": str(tmp_path)})
    assert outcome.returncode == 1
    assert outcome.stderr == "nupa: no pump for the fabric 'default': it is broken\n"
    assert down.left() == []


def test_fabrics_of_several_users_do_not_collide(
    make_net: Callable[..., Net], nobody: User
) -> None:
    """In one folder, with one name: root's `net up` leaves another user's pump alone."""
    theirs, ours = make_net(nobody), make_net()
    theirs.folder.chmod(0o1777)
    theirs.ok("net", "up")
    env = {"NUPA_DIR": str(theirs.folder)}
    for command in ("up", "down"):
        assert ours.run(ours.argv("net", command), env=env).ok
    theirs.exec("host0", [*PING, ip(1)])


@pytest.mark.parametrize("command", ["up", "down"])
def test_what_runs_although_the_state_is_lost_is_found_and_ended(net: Net, command: str) -> None:
    (file,) = net.folder.glob(".nupa-*.net")
    before = net.processes()
    assert len(before) == 2
    file.unlink()
    net.ok("net", command)
    assert not set(before) & set(net.processes())
    if command == "up":
        net.exec("host0", [*PING, ip(1)])


def test_a_net_up_that_is_killed_leaves_no_process(down: Net) -> None:
    env = {**os.environ, **down.env}
    process = subprocess.Popen(down.argv("net", "up"), env=env, stdout=subprocess.DEVNULL)
    while not list(down.folder.glob(".nupa-*.log")) and process.poll() is None:
        pass
    process.kill()
    process.wait(DEADLINE_S)
    if not down.ls():
        while down.processes():  # they see our end
            pass
    down.ok("net", "up")
    down.exec("host0", [*PING, ip(1)])


def test_a_user_of_another_name_is_refused(down: Net) -> None:
    outcome = down.run(down.argv("ls"), env={"NUPA_UID": "me"})
    assert outcome.stderr == "nupa: NUPA_UID is 'me': it is a user's number\n"
