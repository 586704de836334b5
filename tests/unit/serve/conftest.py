# SPDX-License-Identifier: BSD-3-Clause
"""A service of a fabric of three hosts, which requests may change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.serve.service import Options, Service
from nupa.topology.topology import star
from tests.unit.serve.clients import ADMIN


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    with (
        Fabric.create("served", star(3, "served")),
        Service("served", Options(allow_changes=True)) as made,
    ):
        made.accounts.add(*ADMIN, "Administrator")
        yield made
    Fabric.remove("served")
