# SPDX-License-Identifier: BSD-3-Clause
"""A machine of uid 65534, who has no privileges and may not read everything."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.vm.boot import cache
from tests.programs.users import User

from . import programs
from .machine import Machine, booted

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def machine(nobody: User) -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="nupa-test-"))
    # The user may not lock ours, nor see it where it is.
    theirs = folder / "cache"
    shutil.copytree(cache.folder(), theirs, symlinks=True, ignore=shutil.ignore_patterns("lock"))
    for path in (folder, theirs):
        path.chmod(0o755)
        os.chown(path, nobody.uid, -1)
    try:
        with booted(user=nobody, cache=theirs) as machine:
            yield machine
    finally:
        shutil.rmtree(folder)


def test_guests_and_the_machine_exchange_messages(machine: Machine) -> None:
    programs.perftest(machine, "host0", "host1", "ib_write_bw", "-s", "65536")
    programs.perftest(machine, machine.here, "host1", "ib_send_lat", "-s", "64")


def test_who_is_root_in_a_guest_reads_what_its_user_may_read(machine: Machine) -> None:
    told = machine.run("host0", ["sh", "-c", "id -u; cat /etc/shadow || cat /etc/hostname"])
    assert told.stdout.splitlines() == ["0", Path("/etc/hostname").read_text().strip()]
    assert "Permission denied" in told.stderr


def test_what_a_guest_writes_stays_in_it(machine: Machine) -> None:
    name = f"/etc/nupa-test-{os.getpid()}"
    machine.run("host0", ["sh", "-c", f"echo here > {name}; cat {name}"])
    machine.run("host1", ["sh", "-c", f"! test -e {name}"])
    assert not Path(name).exists()
