# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests.trunk`: the soak of trunks from the command line."""

from __future__ import annotations

import sys

from tests.soak.command import run_command

from .soak import run_trunk_soak

_OPTIONS = {"workers": (18, "processes at a time"), "links": (36, "connections at a time")}

if __name__ == "__main__":
    sys.exit(run_command("tests.trunk", run_trunk_soak, _OPTIONS, seconds=600))
