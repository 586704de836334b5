# SPDX-License-Identifier: BSD-3-Clause
"""Two machines, of this module; a forwarder that impairs the path between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.common.impair import build
from tests.common.namespaces import Namespace, machines


@pytest.fixture(scope="session")
def impair(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program that impaired() runs."""
    return build(tmp_path_factory.mktemp("impair"))


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    with machines(2) as (left, right):
        yield left, right
