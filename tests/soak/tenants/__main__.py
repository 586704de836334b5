# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests.soak.tenants`: the tenants' soak from the command line."""

from __future__ import annotations

import sys

from tests.soak.command import run_command

from .run import run_soak

_OPTIONS = {"hosts": (6, "hosts"), "pairs": (2, "exchanges at a time")}

if __name__ == "__main__":
    sys.exit(run_command("tests.soak.tenants", run_soak, _OPTIONS))
