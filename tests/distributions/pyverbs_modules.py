# SPDX-License-Identifier: BSD-3-Clause
"""Imports each module of pyverbs, and loads each driver in argv, with all of its symbols bound.

Run by the Python of a release, so it knows of no other module of ours.
"""

import ctypes
import importlib
import os
import sys
from pathlib import Path

import pyverbs

FOLDER = Path(pyverbs.__file__).parents[1]

for path in sorted(FOLDER.glob("pyverbs/**/*.so")):
    importlib.import_module(
        ".".join([*path.relative_to(FOLDER).parent.parts, path.name.split(".")[0]])
    )
for driver in sys.argv[1:]:
    ctypes.CDLL(driver, mode=os.RTLD_NOW)
maps = Path("/proc/self/maps").read_text().splitlines()
mapped = {line.split("/")[-1] for line in maps if "/" in line}
print(*sorted(mapped))
