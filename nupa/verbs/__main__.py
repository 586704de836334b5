# SPDX-License-Identifier: BSD-3-Clause
"""Runs a pyverbs program unchanged: python -m nupa.verbs PROGRAM ARGUMENTS ...

nupa run -- python -m nupa.verbs ./program.py --its-own-options
nupa run -- python -m nupa.verbs -m package --its-own-options
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from nupa.verbs.as_pyverbs import install


def main() -> int:
    """Returns 2 if there is no program to run; else the program's exit code."""
    arguments = sys.argv[1:]
    if not arguments or arguments == ["-m"]:
        print("usage: python -m nupa.verbs PROGRAM | -m MODULE [ARGUMENTS ...]", file=sys.stderr)
        return 2
    install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        # As python itself does for a program given by its path.
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(str(Path(arguments[0]).absolute()), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
