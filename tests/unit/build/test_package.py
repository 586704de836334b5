# SPDX-License-Identifier: BSD-3-Clause
"""The package as installed: its version, its engine, and what its start does not import."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import nupa

# Seconds of import time between them; each is imported where it is used.
HEAVY = {"matplotlib", "numpy", "pyroute2", "scapy"}


def test_the_version_is_the_one_in_the_metadata() -> None:
    assert nupa.__version__ == importlib.metadata.version("nupa")


def test_the_engine_loads_with_every_symbol_it_needs() -> None:
    from nupa._engine import ffi, lib

    assert lib.NUPA_MOVER_RELAY == 5
    assert ffi.sizeof("struct nupa_host") == 64


@pytest.mark.parametrize("module", ["nupa", "nupa.cli", "nupa.fabric", "nupa.verbs"])
def test_a_start_imports_no_heavy_package(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert module in loaded
    assert not loaded & HEAVY
