# SPDX-License-Identifier: BSD-3-Clause
"""`net up` in a guest, whose fabric is a device: here a file elsewhere, and another network."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.programs.pair import ProgramOutcome
from tests.net.lab import Net, ip

_NUPA = f"{sys.executable} -P -m nupa.cli"


class Guest:
    """Runs shell commands, `nupa` is a word of theirs, in a network of their own."""

    def __init__(self, net: Net, segment: str, host: str) -> None:
        self._net = net
        self._own = ["unshare", "-n"] if net.user.uid == 0 else ["unshare", "-Urn"]
        self.folder = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
        self._env = {"NUPA_DIR": str(self.folder), "NUPA_FABRIC": segment, "NUPA_HOST": host}

    def run(self, script: str, **env: str) -> ProgramOutcome:
        text = f'set -e; nupa() {{ {_NUPA} "$@"; }}; ip link set lo up; {script}'
        return self._net.run([*self._own, "sh", "-c", text], env={**self._env, **env})


@pytest.fixture
def guest(down: Net) -> Iterator[Guest]:
    down.ok("up")
    (segment,) = down.folder.glob("nupa-*-default")
    guest = Guest(down, str(segment), "host1")
    yield guest
    left = list(guest.folder.iterdir())
    shutil.rmtree(guest.folder)
    assert left == []


def test_a_guest_has_the_interface_of_its_own_host_in_its_own_network(
    down: Net, guest: Guest
) -> None:
    down.ok("net", "up", "--host", "host0")
    told = guest.run(
        f"nupa net up; nupa net up; ping -c 1 -W 5 {ip(0)} >&2; nupa net ls; nupa net down; "
        "! ip link show nupa_net0"
    )
    assert told.ok, told.describe()
    first, again, _, row = told.stdout.splitlines()
    assert first == f"default: nupa_net0 is up on host1 ({ip(1)}); MTU 65280"
    assert again == "default: nupa_net0 is up already on its host; nothing to do"
    assert row.split()[:3] == ["default", "host1", ip(1)]
    assert row.endswith(" up")
    assert [entry["host"] for entry in down.ls()] == ["host0"]


def test_a_guest_must_know_which_host_it_is(guest: Guest) -> None:
    told = guest.run("nupa net up", NUPA_HOST="")
    assert (told.returncode, told.stderr) == (
        1,
        "nupa: the hosts of the fabric 'default' are machines: name this one with --host\n",
    )
    told = guest.run("nupa net up --host host0; nupa net down", NUPA_HOST="")
    assert told.ok, told.describe()


def test_what_is_shown_in_a_guest_is_the_fabric_that_it_shares(guest: Guest) -> None:
    told = guest.run("nupa show")
    assert told.ok, told.describe()
    assert told.stdout.startswith("default: 2 hosts")
