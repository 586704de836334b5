# SPDX-License-Identifier: BSD-3-Clause
"""tests/data/linux_guest.json: the tree of a guest, by lspci, sysfs and QEMU's monitor."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nupa.cxl.link.bdf import Bdf

CAPTURE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/linux_guest.json").read_text()
)
Read = Callable[[int, int], int]


class Captured(NamedTuple):
    """One function of the guest."""

    bdf: Bdf
    text: str
    image: bytes

    def read(self, offset: int, size: int) -> int:
        return int.from_bytes(self.image[offset : offset + size], "little")


def parse(name: str, lines: list[str]) -> Captured:
    """Parse lspci's hex dump; lines that it leaves out are zeros."""
    image = bytearray(4096)
    for line in lines:
        match = re.fullmatch(r"([0-9a-f]{2,3}):((?: [0-9a-f]{2}){16})", line)
        if match:
            at = int(match[1], 16)
            image[at : at + 16] = bytes.fromhex(match[2])
    bus, device, function = (int(part, 16) for part in re.split("[:.]", name)[1:])
    return Captured(Bdf(bus, device, function), "\n".join(lines), bytes(image))


FUNCTIONS = [parse(name, lines) for name, lines in CAPTURE["lspci"].items()]
BY_BDF = {str(each.bdf): each for each in FUNCTIONS}


def sysfs(when: str, decoder: str) -> dict[str, str]:
    found: dict[str, str] = CAPTURE[when][decoder]
    return found
