# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests.soak.fm`: the fabric manager's soak from the command line."""

from __future__ import annotations

import sys

from tests.soak.command import run_command

from .run import run_soak

_OPTIONS = {"threads": (2, "managers in threads"), "processes": (2, "managers in processes")}

if __name__ == "__main__":
    sys.exit(run_command("tests.soak.fm", run_soak, _OPTIONS))
