# SPDX-License-Identifier: BSD-3-Clause
"""Screenshots: what is in them, and those of the documentation.

`python -m tests.browser.pictures docs/pictures` takes the latter anew.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image, ImageChops

from nupa.fabric import Fabric
from nupa.topology.topology import star
from tests.browser import made
from tests.browser.chromium import SIZE, Browser, browser
from tests.browser.serving import serving
from tests.browser.traffic import stream

BYTES_MAX = 200_000
_VISIBLE = 24  # a difference of lightness, of 255
_WINDOW = (SIZE[0], SIZE[1] + 90)  # with the log of events
_COLOURS = 128  # of a picture's palette


class Look(NamedTuple):
    """A picture in numbers: its size, the mean lightness (0 to 255), distinct colours, and the
    part of pixels that differ from the most frequent colour."""

    size: tuple[int, int]
    lightness: float
    colours: int
    drawn: float


def look(png: bytes) -> Look:
    """Returns the numbers of a PNG."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    colours = image.getcolors(1 << 24) or []
    most = max(count for count, _ in colours)
    grey = image.convert("L").histogram()
    pixels = image.width * image.height
    lightness = sum(value * count for value, count in enumerate(grey)) / pixels
    return Look(image.size, lightness, len(colours), 1 - most / pixels)


def difference(a: bytes, b: bytes) -> float:
    """Returns the part of pixels that differ visibly between two PNGs of one size."""
    one, other = (Image.open(io.BytesIO(png)).convert("L") for png in (a, b))
    assert one.size == other.size
    by_difference = ImageChops.difference(one, other).histogram()
    return sum(by_difference[_VISIBLE:]) / (one.width * one.height)


def take(page: Browser, folder: Path) -> list[Path]:
    """Takes the pictures of the documentation; returns their files."""
    page.driver.set_window_size(*_WINDOW)
    try:
        return [*_take_page(page, folder), _take_transfer(page, folder)]
    finally:
        page.driver.set_window_size(*SIZE)


def _take_transfer(page: Browser, folder: Path) -> Path:
    """Takes the diagram of a transfer of a real fabric."""
    path = folder / "serve-transfer.png"
    with (
        tempfile.TemporaryDirectory(prefix="nupa-browser-", dir="/dev/shm") as segments,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("NUPA_DIR", segments)
        with (
            Fabric.create("pair", star(2, "pair")) as fabric,
            serving("pair") as url,
            stream(fabric, 0, 1),
        ):
            page.open(url)
            page.click("#tab-transfers")
            page.click(".traces .tools button")
            page.wait("return document.querySelectorAll('#panel-transfers tbody tr').length > 3")
            page.click("#panel-transfers tbody tr:nth-child(3) button")
            page.wait("return document.querySelector('.diagram svg')")
            drawing = page.driver.find_element("css selector", ".diagram > .scroll")
            _save(drawing.screenshot_as_png, path)
        Fabric.remove("pair", force=True)
    return path


def _take_page(page: Browser, folder: Path) -> list[Path]:
    found = []
    shown = made.furnished(made.snapshot(24, 4, prefix="gpu"))
    with serving("gpu24", allow_changes=True, snapshots=made.Recorded(shown)) as url:
        for scheme in ("light", "dark"):
            page.open(url, scheme)
            page.click("[data-id=gpu13]")
            page.wait("return document.documentElement.dataset.updates >= 4")  # for the chart
            found.append(folder / f"serve-{scheme}.png")
            _save(page.driver.get_screenshot_as_png(), found[-1])
    return found


def _save(png: bytes, path: Path) -> None:
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="nupa-browser-") as home, browser(Path(home)) as page:
        for path in take(page, folder):
            print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
