# SPDX-License-Identifier: BSD-3-Clause
"""Plain `nupa run` on a fabric that machines share: the host is the machine on which it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.topology.topology import star
from tests.unit.vm.world import DEADLINE_S, World


def host_of_a_program(*options: str, **env: str) -> str:
    """Runs `nupa run` and returns the host that its program is told."""
    argv = [sys.executable, "-m", "nupa.cli", "run", *options, "--", "sh", "-c", "echo $NUPA_HOST"]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
        env={**os.environ, **env},
    )
    return done.stdout.strip()


def test_the_machine_is_its_own_host_and_no_guests(world: World) -> None:
    up = world.up()
    assert host_of_a_program() == up.machine_host == "host2"
    assert host_of_a_program("--host", "host0") == "host0"


def test_a_fabric_beside_a_machine_gives_its_next_free_host(world: World) -> None:
    world.up()
    with Fabric.create("default", star(2), auto=True):
        assert host_of_a_program() == "host0"


@pytest.mark.usefixtures("world")
def test_a_guest_is_its_own_host(tmp_path: Path) -> None:
    # As in a guest: the fabric is a path that is no name, and none has a name.
    with Fabric.create("shared", star(3)) as fabric:
        other = tmp_path / "other"
        other.mkdir()
        told = {"NUPA_DIR": str(other), "NUPA_FABRIC": os.path.abspath(fabric.path)}  # noqa: PTH100
        assert host_of_a_program(**told, NUPA_HOST="host1") == "host1"
    Fabric.remove("shared")
