# SPDX-License-Identifier: BSD-3-Clause
"""Debian's Chromium without a screen, by selenium, with a profile folder of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service as DriverService
from selenium.webdriver.support.ui import WebDriverWait

#: Seconds to wait for a condition: a limit for failures, not a measure.
PATIENCE_S = 30
SIZE = (1440, 1000)


class Browser:
    """A browser; *errors* are what its console said since the last open()."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str, scheme: str = "light") -> None:
        """Opens a page, and waits until it shows a snapshot."""
        self.driver.get("about:blank")  # ends the page before, which may ask its server again
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.emulate(scheme)
        self.driver.get(url)
        self.wait("return Number(document.documentElement.dataset.updates || 0) >= 1")

    def drawn_ms(self) -> float:
        """Returns the time from the page's last byte to the first snapshot drawn: scripts, stream
        and drawing.

        The least of three loads, since other programs may take both cores for a while.
        """
        took = []
        for _ in range(3):
            self.driver.refresh()
            self.wait("return performance.getEntriesByName('nupa-first-snapshot').length")
            took.append(
                self.run(
                    "const at = performance.getEntriesByName('nupa-first-snapshot')[0].startTime;"
                    "return at - performance.getEntriesByType('navigation')[0].responseEnd"
                )
            )
        print(f"drawn {[round(each) for each in took]} ms after the page arrived")
        return float(min(took))

    def emulate(self, scheme: str) -> None:
        """Makes the system's colour scheme light or dark, as a media feature."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def run(self, script: str, *args: object) -> Any:
        return self.driver.execute_script(script, *args)  # type: ignore[no-untyped-call]

    def wait(self, script: str, *args: object) -> Any:
        """Waits until a script returns something true; returns it."""
        return WebDriverWait(self.driver, PATIENCE_S, 0.05).until(lambda _: self.run(script, *args))

    def later(self, script: str, act: Callable[[], object]) -> Any:
        """Starts a script, which calls `done(value)`; calls *act*; returns the value."""
        name = f"nupaTest{os.urandom(4).hex()}"
        self.run(f"window.{name} = new Promise((done) => {{ {script} }})")
        act()
        self.driver.set_script_timeout(PATIENCE_S)
        return self.driver.execute_async_script(f"window.{name}.then(arguments[0])")  # type: ignore[no-untyped-call]

    def click(self, selector: str) -> None:
        """Clicks on an element, which may be one of SVG."""
        self.run(
            "document.querySelector(arguments[0])"
            ".dispatchEvent(new MouseEvent('click', { bubbles: true }))",
            selector,
        )

    def texts(self, selector: str) -> list[str]:
        return self._each(selector, "textContent")

    def labels(self, selector: str) -> list[str]:
        return self._each(selector, "ariaLabel")

    def _each(self, selector: str, name: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((n) => n[arguments[1]])"
        found: list[str] = self.run(script, selector, name)
        return found

    def errors(self) -> list[str]:
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] in ("SEVERE", "WARNING")
        ]

    def requests(self) -> list[str]:
        """Returns the addresses that the browser asked for since open(), but for its own pages."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [url for url in found if not url.startswith(("data:", "chrome:", "about:"))]

    def accessible(self) -> list[dict[str, Any]]:
        """Returns the nodes of the accessibility tree that are not ignored."""
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [node for node in nodes if not node["ignored"]]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Starts Chromium; *folder*: of its profile, and for its home."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={SIZE[0]},{SIZE[1]}",
        "--force-device-scale-factor=1",
        "--hide-scrollbars",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-extensions",
        "--no-first-run",
        "--lang=en",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(
        options=options,
        service=DriverService(
            "/usr/bin/chromedriver", env={**os.environ, "HOME": str(folder), "TZ": "UTC"}
        ),
    )
    try:
        yield Browser(driver)
    finally:
        driver.quit()
