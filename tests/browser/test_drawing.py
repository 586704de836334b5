# SPDX-License-Identifier: BSD-3-Clause
"""Drawings of recorded snapshots: the same each time, readable, in light and dark; 1,000 hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nupa.live.snapshot import Snapshot
from tests.browser import made
from tests.browser.chromium import SIZE, Browser
from tests.browser.pictures import BYTES_MAX, difference, look, take
from tests.browser.serving import serving

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
#: Rectangles of the drawing that no other of their kind may cover.
_BOXES = """
return [...document.querySelectorAll("#drawing .node > rect:not(.behind):not(.stripe)")]
  .map((node) => node.getBBox())
  .map((box) => [box.x, box.y, box.x + box.width, box.y + box.height]);
"""
#: Texts that are wider than their tile: [text, by how much].
_TOO_WIDE = """
return [...document.querySelectorAll("#drawing .node")].flatMap((node) => {
  const box = node.querySelector("rect")?.getBBox();
  if (!box) return [];
  return [...node.querySelectorAll("text:not(.badge)")]
    .filter((text) => text.getBBox().width > box.width + 2)
    .map((text) => [text.textContent, text.getBBox().width - box.width]);
});
"""


def _overlaps(boxes: list[list[float]]) -> list[Any]:
    return [
        (a, b)
        for at, a in enumerate(boxes)
        for b in boxes[at + 1 :]
        if a[0] < b[2] - 1 and b[0] < a[2] - 1 and a[1] < b[3] - 1 and b[1] < a[3] - 1
    ]


@pytest.mark.parametrize(
    ("hosts", "switches", "spines"),
    [(2, 1, 0), (24, 1, 0), (24, 4, 0), (24, 4, 2), (64, 1, 0), (65, 1, 0), (254, 8, 2)],
)
def test_nodes_do_not_cover_each_other_and_texts_fit(
    chromium: Browser, hosts: int, switches: int, spines: int
) -> None:
    recorded = made.Recorded(made.snapshot(hosts, switches, spines=spines))
    with serving("recorded", snapshots=recorded) as url:
        chromium.open(url)
        boxes = chromium.run(_BOXES)
        assert len(boxes) >= switches + spines
        assert _overlaps(boxes) == []
        assert chromium.run(_TOO_WIDE) == []
        tiles = chromium.run("return document.querySelectorAll('.node.host').length")
        assert tiles == {65: 1, 254: 0}.get(hosts, hosts)
        assert chromium.errors() == []


@pytest.fixture(scope="module")
def rack() -> Snapshot:
    return made.furnished(made.snapshot(24, 4, prefix="gpu"))


def test_the_same_snapshot_gives_the_same_picture_and_dark_is_dark(
    chromium: Browser, rack: Snapshot
) -> None:
    pictures = []
    with serving("recorded", snapshots=made.Recorded(rack)) as url:
        for scheme in ("light", "light", "dark"):
            chromium.open(url, scheme)
            pictures.append(chromium.driver.get_screenshot_as_png())
    light, again, dark = map(look, pictures)
    assert light.size[0] == SIZE[0]
    assert light.size == again.size == dark.size
    assert difference(*pictures[:2]) < 0.001
    assert light.lightness > 215
    assert dark.lightness < 60
    for one in (light, dark):
        assert one.colours > 200  # texts, loads and tenants, not an empty page
        assert one.drawn > 0.2
    assert difference(pictures[0], pictures[2]) > 0.9


def test_the_documentation_has_the_pictures_of_this_page(chromium: Browser, tmp_path: Path) -> None:
    """As far as fonts of another machine allow; of a transfer, its times are others."""
    for path in take(chromium, tmp_path):
        kept = (PICTURES / path.name).read_bytes()
        assert len(kept) < BYTES_MAX
        assert path.stat().st_size < BYTES_MAX
        if "transfer" not in path.name:
            ours, theirs = look(path.read_bytes()), look(kept)
            assert (ours.size, ours.lightness) == (
                theirs.size,
                pytest.approx(theirs.lightness, abs=6),
            )
            assert difference(path.read_bytes(), kept) < 0.12


def test_a_port_that_goes_down_changes_the_picture_a_little(
    chromium: Browser, rack: Snapshot
) -> None:
    recorded = made.Recorded(made.snapshot(24, 4, prefix="gpu"))
    with serving("recorded", snapshots=recorded) as url:
        chromium.open(url)
        before = chromium.driver.get_screenshot_as_png()
        recorded.snapshot = rack
        chromium.wait("return document.getElementById('sum-down').textContent === '1'")
        after = chromium.driver.get_screenshot_as_png()
    assert 0.0005 < difference(before, after) < 0.5


def test_the_theme_button_overrules_the_system(chromium: Browser, rack: Snapshot) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    with serving("recorded", snapshots=made.Recorded(rack)) as url:
        chromium.open(url, "dark")
        system = chromium.run(ground)
        chromium.run("document.getElementById('theme').click()")
        light = chromium.run(ground)
        chromium.run("document.getElementById('theme').click()")
        assert chromium.run(ground) == system != light
        chromium.driver.refresh()  # it is kept
        chromium.emulate("light")
        assert chromium.wait("return document.documentElement.dataset.theme") == "dark"
        assert chromium.run(ground) == system
        chromium.run("localStorage.clear()")


def test_a_thousand_hosts_are_grouped_and_drawn_within_a_second(chromium: Browser) -> None:
    recorded = made.Recorded(made.snapshot(1000, 16, spines=4))
    with serving("recorded", snapshots=recorded) as url:
        chromium.open(url)
        assert (
            chromium.run("return document.getElementById('sum-hosts').textContent") == "1\u2009000"
        )
        names = chromium.labels(".group")
        assert len(names) == 16
        assert names[0].startswith("host0 to host62 at switch0: 63 hosts, closed")
        assert chromium.run(_TOO_WIDE) == []
        assert chromium.drawn_ms() < 1000
        group = "document.querySelector('.group').dispatchEvent(new Event('click'))"
        chromium.run(group)
        assert chromium.run("return document.querySelectorAll('.node.host').length") == 63
        assert _overlaps(chromium.run(_BOXES)) == []
        chromium.run(group)
        assert chromium.run("return document.querySelectorAll('.node.host').length") == 0
        # Tables are cut, say so, and a filter reaches the rest.
        more = "return document.querySelector('#panel-hosts .more').textContent"
        assert chromium.run(more).startswith("… and 800 more")
        chromium.run(
            "const filter = document.getElementById('filter'); filter.value = 'host999';"
            "filter.dispatchEvent(new Event('input'))"
        )
        assert chromium.texts("#panel-hosts tbody th") == ["host999"]


def test_a_flood_of_events_keeps_the_log_short(chromium: Browser, rack: Snapshot) -> None:
    event = dict(rack.events[0])
    recorded = made.Recorded(rack._replace(events=[]))
    with serving("recorded", snapshots=recorded) as url:
        chromium.open(url)
        for first in (1, 101, 201):
            events = [event | {"seq": number} for number in range(first, first + 100)]
            recorded.snapshot = rack._replace(events=events)
            chromium.wait(
                "return document.getElementById('event-count').textContent === arguments[0]",
                str(first + 99),
            )
        assert chromium.run("return document.querySelectorAll('#events li').length") == 200
        # A screen reader hears sentences, not 300 events.
        said = chromium.run("return document.getElementById('announcer').textContent")
        assert "events;" in said or not said
        events = [event | {"seq": number} for number in range(401, 501)]
        recorded.snapshot = rack._replace(events=events)
        chromium.wait("return document.querySelector('#events .missed')")
        assert chromium.texts("#events .missed")[0].startswith("100 events not shown")
