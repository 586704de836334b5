# SPDX-License-Identifier: BSD-3-Clause
"""tshark's view of a capture file, field by field."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Protocols that recognise themselves in payloads of InfiniBand, and take ours for theirs.
_GUESSERS = [
    "smc",
    "smb_direct",
    "rpcordma",
    "nvme-rdma",
    "lnet",
    "iser",
    "infiniband_sdp",
    "fcoib",
    "infiniband.eoib",
]


def without_guessers() -> list[str]:
    """Returns options of tshark."""
    return [word for protocol in _GUESSERS for word in ("--disable-protocol", protocol)]


def dissect(file: Path, *options: str) -> list[dict[str, list[str]]]:
    """Returns the fields of each packet: name -> values, in their order.

    Groups of fields that tshark shows as a field, too, are left out.
    """
    command = ["tshark", "-n", "-r", str(file), "-T", "json", *options, *without_guessers()]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=50)
    packets = json.loads(done.stdout, object_pairs_hook=_pairs)
    return [_flat(dict(dict(packet)["_source"])["layers"]) for packet in packets]


def _pairs(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return pairs  # names occur more than once


def _flat(tree: list[tuple[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in _leaves(tree):
        found.setdefault(name, []).append(value)
    return found


def _leaves(tree: list[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    for name, value in tree:
        if isinstance(value, str):
            yield name, value
        elif value:
            yield from _leaves(value)


def number(text: str) -> int:
    """Parses a number of tshark: 12, 0x0c or 0c:00."""
    return int(text.replace(":", ""), 16) if ":" in text else int(text, 0)
