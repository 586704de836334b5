# SPDX-License-Identifier: BSD-3-Clause
"""The formats by a file's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nupa.model.bounded import read_bytes
from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.network.readers import astra_sim, hpcc, htsim, nccl

FILE_BYTES_MAX = 64 << 20

Reader = Callable[[bytes, str, str], Network]

#: HPCC's and SimAI's files have any name, and often no suffix.
READERS: dict[str, Reader] = {
    ".topo": htsim.parse,
    ".yml": astra_sim.parse,
    ".yaml": astra_sim.parse,
    ".txt": hpcc.parse,
    "": hpcc.parse,
}
SUFFIXES = (*(suffix for suffix in READERS if suffix), ".xml")


def read(path: Path, ranks: int = 0) -> Network:
    """Returns the network of a file.  ModelError names the file, the line and the field.

    *ranks*: NCCL's XML describes one server; this is for how many GPUs there are servers.
    """
    data = read_bytes(path, FILE_BYTES_MAX)
    if path.suffix == ".xml":
        return nccl.parse(data, str(path), path.stem, ranks)
    reader = READERS.get(path.suffix)
    if reader is None and data[:1].isdigit():
        reader = hpcc.parse  # names such as …_8gps_2.4Tbps_H20
    if reader is None:
        raise ModelError(
            f"{path}: the suffix {path.suffix!r} is unknown: {', '.join(SUFFIXES)} and .toml are "
            "read, and files of HPCC and SimAI of any name"
        )
    return reader(data, str(path), path.name)
