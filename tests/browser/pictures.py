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

from PIL import Image, ImageChops

from tests.browser import made
from tests.browser.chromium import Browser, browser
from tests.browser.serving import serving

_VISIBLE = 24  # a difference of lightness, of 255
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
    found = []
    shown = made.furnished(made.snapshot(24, 4, prefix="gpu"))
    with serving("gpu24", allow_changes=True, snapshots=made.Recorded(shown)) as url:
        for scheme in ("light", "dark"):
            page.open(url, scheme)
            page.run("document.querySelector('[data-id=gpu14]').dispatchEvent(new Event('click'))")
            page.wait("return document.querySelector('#details-name')")
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
