# SPDX-License-Identifier: BSD-3-Clause
"""Stages: a user, a mover, and a folder for fabrics in which nothing may be left."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.programs import users
from tests.programs.clock import quick_clock
from tests.programs.stage import Stage
from tests.programs.users import User

__all__ = ["quick_clock"]


@pytest.fixture
def make_stage() -> Iterator[Callable[[User], Stage]]:
    """Makes stages, each with its folder; a fabric that is left there is a leak."""
    stages: list[Stage] = []

    def make(user: User) -> Stage:
        folder = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
        os.chown(folder, user.uid, -1)
        stages.append(Stage(folder, user))
        return stages[-1]

    yield make
    left = [entry.name for stage in stages for entry in stage.folder.iterdir()]
    for stage in stages:
        shutil.rmtree(stage.folder)
    assert left == []


@pytest.fixture
def stage(make_stage: Callable[[User], Stage]) -> Stage:
    """Ours, with the mover that the engine finds best."""
    return make_stage(users.ourselves())


@pytest.fixture
def fabric(stage: Stage) -> Iterator[Stage]:
    """Ours, with the default fabric up from before the server until after the client."""
    stage.ok("up")
    yield stage
    stage.ok("down")


@pytest.fixture(params=["shared", "cma", "relay"])
def moved(request: pytest.FixtureRequest, stage: Stage) -> Stage:
    """Ours, with each mover forced."""
    return replace(stage, mover=request.param)


@pytest.fixture(params=["ourselves", "nobody"])
def by_user(request: pytest.FixtureRequest, make_stage: Callable[[User], Stage]) -> Stage:
    """Each user's, with the mover that the engine finds best."""
    ours = request.param == "ourselves"
    return make_stage(users.ourselves() if ours else request.getfixturevalue("nobody"))


@pytest.fixture(params=["cma", "relay", "denied"])
def everywhere(request: pytest.FixtureRequest, by_user: Stage) -> Stage:
    """Each user's, with each mover forced, and with process_vm_* denied to both hosts."""
    if request.param == "denied":
        return replace(by_user, denied=("host0", "host1"))
    return replace(by_user, mover=request.param)
