# SPDX-License-Identifier: BSD-3-Clause
"""The command `nupa` as `make` installs it: a link to csrc/launcher, beside a script of Python."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import nupa

LAUNCHER = Path(nupa.__path__[0]) / "bin" / "nupa"
#: The command without the launcher.
PYTHON = (sys.executable, "-P", "-m", "nupa.cli")


def install(folder: Path, script: str = f'exec {shlex.join(PYTHON)} "$@"') -> str:
    """Makes the command in *folder*, with this shell script where Python would be; its path."""
    folder.mkdir(exist_ok=True)
    python = folder / "nupa-python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    command = folder / "nupa"
    command.symlink_to(LAUNCHER)
    return str(command)
