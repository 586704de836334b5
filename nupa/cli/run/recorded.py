# SPDX-License-Identifier: BSD-3-Clause
"""`nupa run --record`: the folder into which each process of the program writes its recording."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nupa.base.errors import LocalError
from nupa.cli.common.command import fail

SUFFIX = ".nrec"  # csrc/engine/record/record.c names the files
_MAGIC_BYTES = 8
_GENERATION = slice(32, 40)  # of struct nupa_record_header


def prepare(folder: str, generation: int) -> str:
    """Makes the folder; returns its absolute path.

    Programs on one fabric share a folder: *generation* is the fabric's.
    LocalError: it cannot be made, or has a recording of another fabric.
    """
    place = Path(folder).absolute()
    try:
        place.mkdir(parents=True, exist_ok=True)
        for file in place.glob(f"*{SUFFIX}"):
            with file.open("rb") as opened:
                header = opened.read(_GENERATION.stop)
            begun = any(header[:_MAGIC_BYTES])  # else its process is just making it
            if begun and header[_GENERATION] != generation.to_bytes(8, sys.byteorder):
                raise LocalError(
                    f"--record {folder} has a recording of another fabric ({file.name}): name "
                    "another folder, or delete it"
                )
    except OSError as error:
        raise LocalError(f"--record {folder}: {error.strerror}", error.errno or 0) from error
    if not os.access(place, os.W_OK):
        raise LocalError(f"--record {folder}: you may not write there")
    return str(place)


@contextmanager
def recorded(folder: str) -> Iterator[None]:
    """Says on stderr, when the program has ended, if none of its processes recorded anything."""
    yield
    if not os.environ.get("NUPA_QUIET") and not next(Path(folder).glob(f"*{SUFFIX}"), None):
        fail(f"nothing was recorded in {folder}: no process of the program used an RDMA device")
