# SPDX-License-Identifier: BSD-3-Clause
"""A fabric with two tenants, for the tests of commands of the control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.topology.file import load


@pytest.fixture(autouse=True)
def fabric(folder: Path) -> Iterator[Fabric]:  # noqa: ARG001
    """The default one, of the preset `tenants`, in a folder of this test alone."""
    with Fabric.create("default", load("tenants")) as fabric:
        yield fabric
    Fabric.remove("default")
