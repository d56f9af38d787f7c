"""The report in a real browser: plots drawn, nothing on the console, nothing wider than the page.

Chromium is driven through its debugging pipe, so no driver, port or Python package is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from occamid.reporting.page import render
from occamid.reporting.plots import figures
from tests.support.report_cases import HOSTILE, hostile_content, small_content

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)
DEADLINE = 60.0  # seconds for any one answer on a busy machine

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


class Browser:
    """One tab of headless Chromium; commands and answers of the DevTools protocol."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        inner_read, self._write = os.pipe()
        self._read, inner_write = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on descriptor 4.
        command = f'exec "$0" "$@" 3<&{inner_read} 4>&{inner_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(inner_read, inner_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(inner_read)
        os.close(inner_write)
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + DEADLINE
        while True:
            answer = self._next(end)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "Chromium has gone"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def evaluate(self, expression: str) -> Any:
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path: Path, width: int, scheme: str = "light") -> None:
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media="screen", features=[feature])
        self.call("Page.navigate", url=path.as_uri())
        end = time.monotonic() + DEADLINE
        while not self.evaluate(
            "document.readyState === 'complete' && location.href !== 'about:blank'"
        ):
            assert time.monotonic() < end, "the page does not finish"
            time.sleep(0.05)
        self.evaluate("new Promise(done => setTimeout(done, 300))")

    def complaints(self) -> list[str]:
        """Errors and warnings on the console, exceptions, refused requests."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif method == "Page.javascriptDialogOpening":
                found.append(f"a dialog: {params['message']}")
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        sent = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        urls = [p["request"]["url"] for p in sent]
        return [url for url in urls if not url.startswith(("data:", "blob:"))]

    def screenshot(self, path: Path) -> None:
        height = self.evaluate("document.documentElement.scrollHeight")
        width = self.evaluate("window.innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        answer = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        self._session = ""
        try:
            self.call("Browser.close")
            self._process.wait(DEADLINE)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._write)
            os.close(self._read)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, content in (("one", small_content()), ("hostile", hostile_content())):
        made[name] = folder / f"{name}.html"
        made[name].write_text(render(content), encoding="utf-8")
    return made


@pytest.mark.parametrize("name", ["one", "hostile"])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_is_drawn_and_fits_the_window(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    browser.open(pages[name], width)
    places = browser.evaluate(
        """[...document.querySelectorAll("[data-figure]")].map(place => {
             const box = place.querySelector("svg.main-svg")?.getBoundingClientRect();
             return [place.dataset.figure, box ? box.width : 0, box ? box.height : 0,
                     box ? box.right : 1e9, place.querySelectorAll("path, rect.bar").length];
           })"""
    )
    content = {"one": small_content(), "hostile": hostile_content()}[name]
    assert {place[0] for place in places} == set(figures(content))
    for figure, wide, high, right, marks in places:
        assert wide > 200, figure
        assert high > 150, figure
        assert right <= width, figure
        assert marks > 3, figure
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    sections = browser.evaluate("[...document.querySelectorAll('section')].map(s => s.id)")
    links = browser.evaluate("[...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
    assert sections == ["verdict", *links]
    assert browser.evaluate("document.querySelectorAll('.matrices svg path').length") == 2
    assert browser.complaints() == []
    assert browser.requests() == [pages[name].as_uri()]


def test_names_are_text_and_nothing_else(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"], 1280)
    assert browser.evaluate("document.querySelector('h1').textContent") == HOSTILE
    assert browser.evaluate("document.images.length") == 0
    assert browser.evaluate("document.scripts.length") == 3
    assert (
        browser.evaluate("document.querySelectorAll('.plot a, a:not([href^=\"#\"])').length") == 0
    )
    titles = browser.evaluate(
        "[...document.querySelectorAll('[data-figure=run0] .ytitle, [data-figure=run0] .y2title')]"
        ".map(title => title.textContent)"
    )
    assert titles == ["<a href='javascript:ale…", "y & z"]
    assert browser.complaints() == []


def test_plots_follow_the_colour_scheme(browser: Browser, pages: dict[str, Path]) -> None:
    paper = (
        "getComputedStyle(document.querySelector('[data-figure=run0] .main-svg')).backgroundColor"
    )
    browser.open(pages["one"], 1280, "light")
    assert browser.evaluate(paper) == "rgb(255, 255, 255)"
    feature = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="screen", features=[feature])
    browser.evaluate("new Promise(done => setTimeout(done, 500))")
    assert browser.evaluate(paper) == "rgb(25, 31, 39)"
    assert browser.complaints() == []


def test_a_screenshot_is_not_empty(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    from matplotlib.image import imread

    browser.open(pages["one"], 390)
    browser.screenshot(tmp_path / "page.png")
    image = imread(tmp_path / "page.png")
    assert image.shape[0] > 3000
    assert image.shape[1] == 390
    assert image[..., :3].std() > 0.05


def test_the_helper_hears_the_console(browser: Browser, tmp_path: Path) -> None:
    """Otherwise silence would prove nothing."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><script>console.error('loud'); missing()</script>"
        "<img src='http://localhost:9/x.png'><div style='width:3000px'>wide</div>"
    )
    browser.open(bad, 390)
    heard = " ".join(browser.complaints())
    assert "loud" in heard
    assert "missing is not defined" in heard
    assert "http://localhost:9/x.png" in browser.requests()
    assert browser.evaluate("document.documentElement.scrollWidth") > 390
