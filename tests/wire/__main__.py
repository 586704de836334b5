# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests.wire`: the soak of wires from the command line."""

from __future__ import annotations

import sys

from tests.soak.command import run_command

from .soak import LEVELS, run_wire_soak

_OPTIONS = {
    "workers": (12, "processes at a time"),
    "links": (24, "connections at a time"),
    "impairment": ("none", "of packets on their way", *LEVELS),
}

if __name__ == "__main__":
    sys.exit(run_command("tests.wire", run_wire_soak, _OPTIONS, seconds=600))
