# SPDX-License-Identifier: BSD-3-Clause
"""Keyboard and screen reader reach everything; text has contrast."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser import made
from tests.browser.chromium import Browser
from tests.browser.serving import serving

#: Roles that need a name, as axe and WAI-ARIA ask.
_NAMED = {
    *("button", "link", "textbox", "searchbox", "combobox", "tab", "tabpanel", "tablist"),
    *("img", "image", "region", "log", "form", "table", "heading", "columnheader"),
}
_CONTROLS = """
return [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter((node) => node.checkVisibility({ visibilityProperty: true }) && node.tabIndex >= 0
    && !node.disabled)
  .map((node, at) => { node.dataset.reach = at; return at; });
"""
#: Contrast of texts with their ground: [text, ratio] below WCAG's 4.5.
_PALE = """
const rgb = (text) => {
  const found = text.match(/[\\d.]+/g).map(Number);
  const parts = text.startsWith("color(");
  return parts ? found.map((value, at) => (at < 3 ? value * 255 : value)) : found;
};
const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
const light = (text) => {
  const [r, g, b] = rgb(text).map((value) => linear(value / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if ((rgb(colour)[3] ?? 1) > 0.5) return colour;
  }
  return "rgb(255, 255, 255)";
};
const own = (node) => [...node.childNodes].filter((one) => one.nodeType === 3);
const found = new Set();
for (const node of document.querySelectorAll("body *")) {
  const text = own(node).map((one) => one.data.trim()).join("");
  const unseen = !node.checkVisibility() || node.closest("noscript, .unseen, .skip, script");
  if (!text || unseen) continue;
  const style = getComputedStyle(node);
  const ink = node.namespaceURI.endsWith("svg") ? style.fill : style.color;
  const [a, b] = [light(ink), light(ground(node))].sort((p, q) => q - p);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) found.add(`${node.tagName} ${text} ${ratio.toFixed(2)}`);
}
return [...found];
"""


@pytest.fixture
def page(chromium: Browser) -> Iterator[Browser]:
    shown = made.furnished(made.snapshot(24, 4, prefix="gpu"))
    with serving("recorded", allow_changes=True, snapshots=made.Recorded(shown)) as url:
        chromium.open(url)
        yield chromium
        assert chromium.errors() == []


def _press(page: Browser, *keys: str) -> None:
    chain = ActionChains(page.driver, duration=0)
    for key in keys:
        chain.send_keys(key)
    chain.perform()


def _choose(page: Browser, host: str) -> None:
    page.run(f"document.querySelector('[data-id={host}]').dispatchEvent(new Event('click'))")
    page.wait("return document.getElementById('details-name')")


def test_everything_has_a_name_for_a_screen_reader(page: Browser) -> None:
    _choose(page, "gpu13")
    page.run("document.querySelector('.changes details').open = true")
    tabs = page.run("return [...document.querySelectorAll('[role=tab]')].map((tab) => tab.id)")
    assert len(tabs) == 10
    seen = set()
    for tab in tabs:
        page.run("document.getElementById(arguments[0]).click()", tab)
        for node in page.accessible():
            role, name = node["role"]["value"], node.get("name", {}).get("value", "").strip()
            seen.add(role)
            assert name or role not in _NAMED, (tab, role, node)
    # Chromium says that a details element is a group, too; its summary names it.
    assert page.run(
        "return [...document.querySelectorAll('[role=group]')].every((n) => n.ariaLabel)"
    )
    assert seen >= {"button", "tab", "table", "searchbox", "combobox", "textbox", "heading"}
    labels = page.labels(".node")
    assert len(labels) == len(set(labels)) == 32
    assert any("gpu13: port up" in label and "1 fault: delay" in label for label in labels)
    assert any(label.startswith("gpu9: port down") for label in labels)
    assert page.run("return document.documentElement.lang") == "en"
    ids = page.run("return [...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))


def test_the_tab_key_reaches_every_control_in_order(page: Browser) -> None:
    _choose(page, "gpu13")
    page.run("document.querySelector('.changes details').open = true")
    page.run("document.getElementById('pause').click()")  # rows stay as they are
    page.run("document.activeElement.blur(); window.getSelection().removeAllRanges()")
    meant = page.run(_CONTROLS)
    # A tab of a tab list, and a node of the drawing, stand for all of them: arrow keys do the rest.
    assert len(meant) > 50
    page.run("document.querySelector('.skip').focus()")
    reached = [page.run("return document.activeElement.dataset.reach")]
    for _ in range(len(meant) + 5):
        _press(page, Keys.TAB)
        at = page.run("return document.activeElement.dataset.reach ?? null")
        if at is None:  # beyond the last
            break
        reached.append(at)
    assert [int(each) for each in reached] == meant


def test_arrow_keys_reach_each_node_and_enter_selects_it(page: Browser) -> None:
    nodes = page.run("return [...document.querySelectorAll('.node')].map((n) => n.dataset.id)")
    page.run("document.querySelector('.node[tabindex=\"0\"]').focus()")
    _press(page, Keys.HOME)
    reached = [page.run("return document.activeElement.dataset.id")]
    for _ in nodes[1:]:
        _press(page, Keys.ARROW_RIGHT)
        reached.append(page.run("return document.activeElement.dataset.id"))
    assert sorted(reached) == sorted(nodes)
    _press(page, Keys.ENTER)
    last = reached[-1]
    assert page.wait("return document.getElementById('details-name')?.textContent") == last
    assert page.run("return document.activeElement.getAttribute('aria-pressed')") == "true"
    _press(page, Keys.ARROW_UP)
    assert page.run("return document.activeElement.dataset.id").startswith("switch")
    _press(page, Keys.ARROW_DOWN)
    assert page.run("return document.activeElement.dataset.id").startswith("gpu")
    # It survives updates.
    before = page.run("return document.documentElement.dataset.updates")
    page.wait("return document.documentElement.dataset.updates > Number(arguments[0]) + 1", before)
    assert page.run("return document.activeElement.dataset.id").startswith("gpu")


def test_arrow_keys_move_between_tabs_and_headings_sort(page: Browser) -> None:
    page.run("document.getElementById('tab-hosts').focus()")
    _press(page, Keys.ARROW_RIGHT)
    selected = "return document.querySelector('[role=tab][aria-selected=true]').id"
    assert page.run(selected) == "tab-ports"
    _press(page, Keys.END)
    assert page.run(selected) == "tab-capture"
    _press(page, Keys.ARROW_RIGHT)
    assert page.run(selected) == "tab-hosts"
    head = "#panel-hosts th:nth-child(7)"
    page.run(f"document.querySelector('{head} button').focus()")
    first = "return document.querySelector('#panel-hosts tbody th').textContent"
    assert page.run(first) == "gpu0"
    _press(page, Keys.ENTER)
    assert page.run(f"return document.querySelector('{head}').ariaSort") == "descending"
    assert page.run(first) == "gpu16"
    _press(page, Keys.SPACE)
    assert page.run(f"return document.querySelector('{head}').ariaSort") == "ascending"


def test_an_event_is_spoken_once_and_a_pause_stops_updates(page: Browser) -> None:
    live = page.run("return document.getElementById('announcer').ariaLive")
    assert live == "polite"
    assert page.run("return document.querySelectorAll('#events li').length") == 4
    page.run("document.getElementById('pause').click()")
    before = page.run("return document.documentElement.dataset.updates")
    page.later("setTimeout(done, 1200)", lambda: None)
    assert page.run("return document.documentElement.dataset.updates") == before
    assert page.run("return document.getElementById('connection').textContent") == "paused"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_wcag_asks_for(page: Browser, scheme: str) -> None:
    page.emulate(scheme)
    _choose(page, "gpu13")
    page.run("document.querySelector('.changes details').open = true")
    for tab in ("hosts", "tenants", "faults", "transfers", "capture"):
        page.run("document.getElementById(arguments[0]).click()", f"tab-{tab}")
        assert page.run(_PALE) == []
