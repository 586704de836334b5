# SPDX-License-Identifier: BSD-3-Clause
"""`nupa net exec` and `nupa shell`: what a program finds, how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.net.lab import DEADLINE_S, Net, ip
from tests.programs.needs import needs
from tests.programs.users import User


def test_hosts_reach_each_other(net_by_user: Net) -> None:
    net_by_user.exec("host0", ["ping", "-c", "1", "-W", "5", ip(1)])
    net_by_user.exec("host1", ["ping", "-c", "1", "-W", "5", "fd4e:5550:4100::1"])
    net_by_user.exec("host1", ["ping", "-c", "1", "-W", "5", "fe80::aff:fe00:1%nupa_net0"])


def test_a_program_sees_the_interfaces_of_its_host_alone(net_by_user: Net) -> None:
    for host in (0, 1):
        script = "ls /sys/class/net; cat /sys/class/net/nupa_net0/address /proc/net/dev | head -3"
        seen = net_by_user.exec(f"host{host}", ["sh", "-c", script]).stdout.splitlines()
        assert seen[:3] == ["lo", "nupa_net0", f"02:00:0a:00:00:0{host + 1}"]


def test_names_of_hosts_resolve_beside_those_of_the_machine(net_by_user: Net) -> None:
    here = Path("/etc/hosts").read_text()
    for shell in (False, True):
        hosts = net_by_user.exec("host0", ["cat", "/etc/hosts"], shell=shell).stdout
        assert hosts == f"{ip(0)} host0\n{ip(1)} host1\n{here}"
        net_by_user.exec("host0", ["ping", "-c", "1", "-W", "5", "host1"], shell=shell)
    assert Path("/etc/hosts").read_text() == here


def test_control_groups_are_where_they_were(net: Net) -> None:
    there = sorted(os.listdir("/sys/fs/cgroup"))  # noqa: PTH208
    assert net.exec("host0", ["ls", "/sys/fs/cgroup"]).stdout.split() == there


def test_an_ordinary_user_is_root_inside_and_owns_what_he_writes(net_by_user: Net) -> None:
    net_by_user.exec("host0", ["touch", str(net_by_user.folder / "mine")])
    mine = net_by_user.folder / "mine"
    assert mine.stat().st_uid == net_by_user.user.uid
    mine.unlink()
    assert net_by_user.exec("host0", ["id", "-u"]).stdout == "0\n"
    net_by_user.exec("host0", ["ip", "link", "set", "lo", "down"])


def test_tcpdump_sees_what_passes(net: Net) -> None:
    command = f"exec {needs('tcpdump', 'tcpdump')} -i nupa_net0 -nc 1 icmp 2>&1"
    dump = net.start("host1", ["sh", "-c", command])
    dump.wait_said("listening on nupa_net0", DEADLINE_S)
    net.exec("host0", ["ping", "-c", "1", "-W", "5", ip(1)])
    assert f"{ip(0)} > {ip(1)}: ICMP echo request" in dump.outcome().stdout


def test_where_a_user_was_given_others_programs_may_give_up_root(
    make_net: Callable[..., Net], nobody: User, tmp_path: Path
) -> None:
    """By /etc/subuid and newuidmap: tcpdump becomes the user tcpdump."""
    needs("newuidmap", "uidmap")
    net = make_net(nobody)
    etc = tmp_path / "etc"
    shutil.copytree("/etc", etc, symlinks=True)
    for name in ("subuid", "subgid"):
        (etc / name).write_text(f"other:1:2\n{nobody.uid}:200000:65536\n")
    changed = f'mount --bind {etc} /etc; exec "$@"'
    up = net.run(["unshare", "-m", "sh", "-c", changed, "sh", *net.argv("net", "up")])
    assert up.ok, up.describe()
    seen = net.exec("host0", ["cat", "/proc/self/uid_map"]).stdout.split()
    assert seen == ["0", str(nobody.uid), "1", "1", "200000", "65536"]
    command = f"exec {needs('tcpdump', 'tcpdump')} -i nupa_net0 -nc 1 icmp 2>&1"
    dump = net.start("host1", ["sh", "-c", command])
    dump.wait_said("listening on nupa_net0", DEADLINE_S)
    net.exec("host0", ["ping", "-c", "1", "-W", "5", ip(1)])
    assert f"{ip(0)} > {ip(1)}: ICMP echo request" in dump.outcome().stdout


def test_exec_has_no_verbs_of_a_host_and_shell_has(net_by_user: Net) -> None:
    script = 'echo "<$NUPA_HOST>"'
    assert net_by_user.exec("host1", ["sh", "-c", script]).stdout == "<>\n"
    assert net_by_user.exec("host1", ["sh", "-c", script], shell=True).stdout == "<host1>\n"
    gids = net_by_user.exec("host1", ["ibv_devinfo", "-v"], shell=True).stdout
    assert f"::ffff:{ip(1)}" in gids
    assert "fe80::aff:fe00:2" in gids


def test_shell_without_a_command_is_the_users_shell(net: Net) -> None:
    argv = net.argv("shell", "host1")
    env = {**os.environ, **net.env, "SHELL": "/bin/sh"}
    done = subprocess.run(
        argv, input="echo $NUPA_HOST\n", env=env, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.stdout, done.returncode) == ("host1\n", 0)


def test_rdma_and_tcp_agree_on_addresses(net_by_user: Net) -> None:
    """perftest shakes hands by TCP over nupa_net0 and moves its data by RDMA."""
    perftest = [needs("ib_send_bw", "perftest"), "-s", "4096", "-n", "100", "-x", "1"]
    server = net_by_user.start("host1", perftest, shell=True)
    net_by_user.listening("host1", 18515, server)
    client = net_by_user.exec("host0", [*perftest, ip(1)], shell=True)
    assert "#bytes" in client.stdout
    assert server.outcome().ok, server.outcome().describe()


def test_commands_inside_know_the_fabrics_of_the_user(net_by_user: Net) -> None:
    inside = net_by_user.argv("net", "ls")
    # The prefix that changes the user is not for root of the user's namespace.
    command = inside[len(net_by_user.user.prefix) :]
    assert net_by_user.exec("host0", command).stdout == net_by_user.ok("net", "ls").stdout


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_programs(net: Net, code: int) -> None:
    assert net.exec("host0", ["sh", "-c", f"exit {code}"], check=False).returncode == code


def test_it_dies_by_the_signal_that_ended_the_program(net: Net) -> None:
    for name in ("TERM", "KILL", "SEGV"):
        done = net.exec("host0", ["sh", "-c", f"kill -{name} $$"], check=False)
        assert done.returncode == -signal.Signals[f"SIG{name}"]


def test_a_program_that_is_not_there_is_127_and_one_that_cannot_run_126(
    net: Net, tmp_path: Path
) -> None:
    done = net.exec("host0", ["no-such-program"], check=False)
    assert done.returncode == 127
    assert done.stderr == "nupa: cannot run no-such-program: No such file or directory\n"
    (tmp_path / "plain").touch()
    assert net.exec("host0", [str(tmp_path / "plain")], check=False).returncode == 126


def test_signals_are_forwarded(net_by_user: Net) -> None:
    script = "trap 'echo got; exit 33' USR1; echo ready; while :; do sleep 0.1; done"
    program = net_by_user.start("host0", ["sh", "-c", script])
    program.wait_said("ready", DEADLINE_S)
    os.kill(program.pid, signal.SIGUSR1)
    outcome = program.outcome()
    assert (outcome.returncode, outcome.stdout) == (33, "ready\ngot\n")


def test_the_program_inherits_no_file_and_has_ordinary_signals(net: Net) -> None:
    script = "import os; print(*sorted(os.listdir('/proc/self/fd')))"
    done = net.exec("host0", [sys.executable, "-c", script])
    assert set(done.stdout.split()) <= {"0", "1", "2", "3"}
    status = net.exec("host0", ["grep", "^SigIgn", "/proc/self/status"]).stdout
    ignored = int(status.split()[1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGINT - 1)


def test_a_start_imports_no_netlink_library(net: Net) -> None:
    argv = [net.user.python, "-X", "importtime", "-m", "nupa.cli", "net", "exec", "host0"]
    done = net.run([*argv, "--", "true"]).check()
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "nupa.netdev.state" in loaded
    slow = {"pyroute2", "asyncio", "dataclasses", "ipaddress", "pathlib", "socket", "subprocess"}
    assert not loaded & slow


def test_rdma_link_names_the_interface_of_the_host(net: Net) -> None:
    command = [needs("rdma", "iproute2"), "-j", "link"]
    for host in ("host0", "host1"):
        (link,) = json.loads(net.exec(host, command, shell=True).stdout)
        assert (link["netdev"], link["state"]) == ("nupa_net0", "ACTIVE")
        index = net.exec(host, ["cat", "/sys/class/net/nupa_net0/ifindex"]).stdout
        assert link["netdev_index"] == int(index)
    here = net.run(net.argv("run", "--host", "host0", "--", *command)).check().stdout
    assert "netdev" not in json.loads(here)[0]
