# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests.soak`: the soak from the command line."""

from __future__ import annotations

import sys

from .command import run_command
from .soak import run_soak

_OPTIONS = {"workers": (24, "processes at a time"), "links": (48, "connections at a time")}

if __name__ == "__main__":
    sys.exit(run_command("tests.soak", run_soak, _OPTIONS, seconds=600))
