# SPDX-License-Identifier: BSD-3-Clause
"""Writes a file or disk, drops the caches, and compares: `compare.py PATH MEGABYTES`."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

_STEP = 1_000_000


def _data(megabytes: int) -> Iterator[bytes]:
    chance = random.Random(7)
    return (chance.randbytes(_STEP) for _ in range(megabytes))


def main(path: Path, megabytes: int) -> None:
    with path.open("r+b" if path.exists() else "xb") as file:
        for step in _data(megabytes):
            file.write(step)
        file.flush()
        os.fsync(file.fileno())
    Path("/proc/sys/vm/drop_caches").write_text("3")
    with path.open("rb") as file:
        for number, step in enumerate(_data(megabytes)):
            assert file.read(_STEP) == step, f"megabyte {number} is another"
    print(f"{megabytes} MB are equal")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
