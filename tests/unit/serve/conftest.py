# SPDX-License-Identifier: BSD-3-Clause
"""A service of a fabric of three hosts, which requests may change."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.fm.server.server import Server, path_of
from nupa.cxl.site.fabric_switch import FabricSite
from nupa.fabric import Fabric
from nupa.serve.service import Options, Service
from nupa.topology.topology import MemoryConfig, star
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


@pytest.fixture
def fm(service: Service) -> Iterator[FabricManager]:
    """A manager of the fabric's CXL switch: a device at port 3, a multi-logical one at port 4."""
    with _managed(service.name) as made:
        yield made
    gc.collect()  # cycles of the switch hold the pool, and the fabric is taken down next


@contextmanager
def _managed(name: str) -> Iterator[FabricManager]:
    memory = [
        MemoryConfig(256 << 20),
        MemoryConfig(1 << 30, logical=True, dynamic_bytes=512 << 20),
    ]
    with (
        Fabric.open(name) as fabric,
        FabricSite(fabric, star(3, name), memory) as site,
        Server(site.manager, path_of(name)).start(),
        FabricManager.open(name) as made,
    ):
        site.use()
        yield made
