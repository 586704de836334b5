# SPDX-License-Identifier: BSD-3-Clause
"""Machines that do not let interfaces be made: one line says what to do, and nothing is left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import nupa
from nupa.programs.pair import ProgramOutcome
from tests.net.lab import Net

#: A shell script runs the command behind it on a machine where that is missing.
NO_TUN = "mount -t tmpfs none /dev/net"
TUN_FOR_NOBODY = "mount -t tmpfs none /dev/net; mknod -m 600 /dev/net/tun c 10 200"
NO_DEVICE = "mount -t tmpfs none /dev/net; mknod -m 666 /dev/net/tun c 10 255"
NO_KEEPER = "mount -t tmpfs none {bin}"


@pytest.fixture
def elsewhere(by_user: Net) -> Net:
    if os.geteuid() != 0:
        pytest.skip("only root can take away what the machine has, in a mount namespace")
    return by_user


def where(script: str, net: Net, *arguments: str) -> ProgramOutcome:
    """Runs `nupa` with these arguments in a mount namespace that *script* has changed."""
    return net.run(
        ["unshare", "-m", "sh", "-c", f'{script}; exec "$@"', "sh", *net.argv(*arguments)]
    )


def line(outcome: ProgramOutcome) -> str:
    assert outcome.returncode == 1, outcome.describe()
    assert outcome.stderr.startswith("nupa: ")
    assert outcome.stderr.count("\n") == 1
    return outcome.stderr


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (NO_TUN, "No such file or directory; `modprobe tun`; in a container: docker run --device"),
        (NO_DEVICE, "`modprobe tun`; in a container: docker run --device /dev/net/tun"),
    ],
)
def test_without_a_tun_device(elsewhere: Net, script: str, why: str) -> None:
    assert why in line(where(script, elsewhere, "net", "up"))
    assert elsewhere.left() == []


def test_with_a_tun_device_that_is_not_for_this_user(elsewhere: Net) -> None:
    if elsewhere.user.uid == 0:
        pytest.skip("root may read and write all devices")
    said = line(where(TUN_FOR_NOBODY, elsewhere, "net", "up"))
    assert "Permission denied; let this user read and write it (mode 0666" in said
    assert elsewhere.left() == []


def denied(net: Net, limit: str) -> Sequence[str]:
    """Returns a command line without privileges, in a user namespace whose root set *limit*=0."""
    # CAP_SETFCAP: a process without it may not map root into a user namespace.
    privileges = "--bounding-set=-all,+setfcap"
    script = f'echo 0 > /proc/sys/user/{limit}; exec setpriv {privileges} -- "$@"'
    return ["unshare", "-Ur", "sh", "-c", script, "sh", *net.argv()[len(net.user.prefix) :]]


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("max_user_namespaces", "cannot make a user namespace: No space left on device; allow"),
        ("max_net_namespaces", "cannot make a network namespace: No space left on device; allow"),
    ],
)
def test_where_namespaces_are_not_allowed(by_user: Net, limit: str, why: str) -> None:
    net = by_user
    argv = [*net.user.prefix, *denied(net, limit), "net", "up"]
    said = line(net.run(argv, env={"NUPA_UID": str(net.user.uid)}))
    assert why in said
    assert "or run it as root\n" in said
    assert net.left() == []


def test_root_without_cap_net_admin_works_as_an_ordinary_user_does(down: Net) -> None:
    if os.geteuid() != 0:
        pytest.skip("we are an ordinary user")
    argv = ["setpriv", "--bounding-set=-net_admin", "--", *down.argv("net", "up")]
    down.run(argv).check()
    down.exec("host0", ["ping", "-c", "1", "-W", "5", "10.0.0.2"])


def test_where_sys_is_masked_programs_are_told_and_run(down: Net) -> None:
    """As in a container: then no other /sys may be mounted in a user namespace."""
    if os.geteuid() != 0:
        pytest.skip("only root can mask a part of /sys")
    script = "mount -t tmpfs none /sys/firmware"
    argv = ["setpriv", "--bounding-set=-net_admin", "--", *down.argv("net", "up")]
    assert down.run(argv).ok
    command = ["setpriv", "--bounding-set=-net_admin", "--", *down.argv("net", "exec", "host0")]
    outcome = down.run(
        ["unshare", "-m", "sh", "-c", f'{script}; exec "$@"', "sh", *command, "--", "ip", "link"]
    )
    assert outcome.ok, outcome.describe()
    assert "nupa_net0" in outcome.stdout
    assert "nupa: /sys shows another network namespace: mount /sys:" in outcome.stderr


def test_without_the_keeper(elsewhere: Net) -> None:
    packages = elsewhere.user.env.get("PYTHONPATH")
    package = Path(packages) / "nupa" if packages else Path(nupa.__path__[0])
    script = NO_KEEPER.format(bin=package / "bin")
    said = line(where(script, elsewhere, "net", "up"))
    assert "/bin/nupa_keeper: build it, `make build` or `pip install .`" in said
    assert elsewhere.left() == []


def test_doctor_says_what_is_missing(elsewhere: Net) -> None:
    outcome = where(NO_TUN, elsewhere, "doctor")
    found = next(row for row in outcome.stdout.splitlines() if row.startswith("netdev"))
    assert "limited" in found
    assert "`nupa net` does not work; RDMA does" in found
    assert "docker run --device /dev/net/tun" in outcome.stdout
