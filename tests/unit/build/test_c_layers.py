# SPDX-License-Identifier: BSD-3-Clause
"""csrc's folders are layers: a file includes headers of its own folder and of those below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[3] / "csrc"
INCLUDE = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)

#: From the lowest folder to the highest: tests include all of them.
LAYERS = (
    "abi",
    "base",
    "packet",
    "cxl",
    "model",
    "segment/layout",
    "segment",
    "segment/slot",
    "segment/control",
    "segment/ring",
    "segment/resource",
    "region",
    "region/view",
    "region/group",
    "engine/promote",
    "engine/core",
    "engine/rate",
    "engine/channel",
    "engine/memory",
    "engine/trace",
    "engine/record",
    "engine/net",
    "engine/cm",
    "engine/queue",
    "engine/transport",
    "engine/qp",
    "engine/inject",
    "engine/fault",
    "engine/wire",
    "engine/attachment",
    "engine/device",
    "guest",
    "perf",
    "launcher",
    "netdev",
    "kernel",
    "wire/frames",
    "trunk",
    "wire",
    "capture/expand",
    "capture",
    "mad",
    "shim",
    "shim/netlink",
    "shim/umad",
    "libibverbs",
    "librdmacm",
    "librdmacm/rsockets",
    "librdmacm/rsockets/datagram",
    "librdmacm/rsockets/calls",
    "binding",
    "tests",
)


def layer(path: str) -> str:
    """Returns the longest folder of the table that *path* lies in."""
    return max((each for each in LAYERS if path.startswith(f"{each}/")), key=len)


def includes(text: str, above: str) -> list[str]:
    """Returns the headers in *text* that lie higher than the layer *above*."""
    height = LAYERS.index(above)
    return [each for each in INCLUDE.findall(text) if LAYERS.index(layer(each)) > height]


@pytest.mark.parametrize("name", LAYERS)
def test_a_folder_includes_only_lower_ones(name: str) -> None:
    files = [
        file for file in (CSRC / name).rglob("*.[ch]") if layer(str(file.relative_to(CSRC))) == name
    ]
    assert files
    upward = {str(each.relative_to(CSRC)): includes(each.read_text(), name) for each in files}
    assert {file: found for file, found in upward.items() if found} == {}


def test_each_source_lies_in_a_layer() -> None:
    for file in CSRC.rglob("*.[ch]"):
        assert layer(str(file.relative_to(CSRC)))


def test_an_upward_include_is_found() -> None:
    text = '#include "engine/queue/queue.h"\n#include "base/list.h"\n'
    assert includes(text, "engine/channel") == ["engine/queue/queue.h"]
