"""The report in a browser: plots drawn, nothing on the console, nothing wider than the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from occamid.reporting.page import render
from occamid.reporting.plots import figures
from tests.support.browser import CHROMIUM, Browser
from tests.support.report_cases import HOSTILE, hostile_content, small_content

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


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
