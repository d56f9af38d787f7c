"""Two small identifications for the tests of the report, each made once in a process."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from typing import Any, NamedTuple

from occamid.bands.combine import ensemble_of
from occamid.bands.ensemble import Ensemble
from occamid.data import twins
from occamid.data.record import Record
from occamid.reporting.content import Shown, content, show
from occamid.training.batch import Batch
from occamid.training.settings import Settings
from occamid.training.train import train

HOSTILE = "</script><script>alert(1)</script>"
IMAGE = '<img src="http://example.org/x.png" onerror="alert(2)">'
LINK = "<a href='javascript:alert(3)'>y</a>"


class Case(NamedTuple):
    model: Ensemble
    batch: Batch
    seen: tuple[Shown, ...]
    unseen: tuple[Shown, ...]

    @property
    def test(self) -> Record:
        return self.unseen[0].record

    def content(self, *, test: bool = True, **notes: Any) -> dict[str, Any]:
        return content(self.model, self.batch, self.seen, self.unseen if test else (), notes)


def _case(estimation: Record, test: Record, settings: Settings) -> Case:
    batch = train(estimation, settings)
    model = ensemble_of(batch, estimation, count=2)
    return Case(model, batch, show(model, [estimation]), show(model, [test]))


@cache
def one_channel() -> Case:
    """The hairdryer's twin: one input, one output."""
    twin = twins.make("hairdryer-twin")
    settings = Settings(
        hidden=(3,), lam=(1e-3, 3e-3), restarts=2, epochs=60, cycles=3, input_lags=6, output_lags=3
    )
    return _case(twin.estimation[:300], twin.test[:300], settings)


@cache
def hostile() -> Case:
    """Two masses: two inputs, two outputs, and names that would be markup."""
    twin = twins.make("mass-spring-damper-twin")
    settings = Settings(hidden=(3,), restarts=2, epochs=40, cycles=2, input_lags=3, output_lags=3)
    estimation, test = (
        replace(
            record[:300], name=HOSTILE, input_names=(HOSTILE, IMAGE), output_names=(LINK, "y & z")
        )
        for record in (twin.estimation, twin.test)
    )
    return _case(estimation, test, settings)


@cache
def small_content() -> dict[str, Any]:
    """What the page of :func:`one_channel` shows; not to be changed."""
    return one_channel().content(title="Hairdryer", command="occamid identify")


@cache
def hostile_content() -> dict[str, Any]:
    """What the page of :func:`hostile` shows; not to be changed."""
    return hostile().content(note=IMAGE)


class Links(HTMLParser):
    """Everything in a page that could fetch or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.inside = ""
        self.text: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = tag + str(self.tags.count(tag)) if tag in ("script", "style") else ""
        for name, value in attrs:
            if name in ("src", "href", "action", "srcset", "data", "poster", "xlink:href"):
                self.addresses.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.text[self.inside] = self.text.get(self.inside, "") + data

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""
