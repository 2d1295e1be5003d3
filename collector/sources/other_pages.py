"""A metrics page of anybody: the configuration says which family feeds which signal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from collector.sources.engine.engines import Alias, Engine, Row, Term
from collector.sources.fetch import FetchLimits
from collector.sources.page.families import normal_name
from collector.sources.page.page import Page
from collector.sources.protocols import Place, Source, Tools
from collector.sources.scrape import ScrapeSource, ScrapeTarget
from collector.values import HttpUrl, Seconds, refuse
from detectors.signals import READING_SIGNALS, SIGNALS, Kind


class PageConfig(BaseModel):
    """Any page in the Prometheus format, with the families that feed canonical signals."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["page"] = "page"
    url: HttpUrl = Field(description="Address of the page.")
    signals: Mapping[str, str] = Field(
        min_length=1, description="Canonical signal to the family of the page that feeds it."
    )
    match: Mapping[str, str] = Field(
        default_factory=dict, description="Labels that a series must carry to be read."
    )
    interval: Seconds = Field(default=15.0, description="Time between reads.")

    @field_validator("signals")
    @classmethod
    def _known(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        known = {signal.name for signal in READING_SIGNALS}
        for name in value:
            if name not in known:
                refuse("signals of docs/metrics.md", f"{name!r} is none of them")
        return value

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        rows = Engine("page", "", tuple(map(_row, self.signals, self.signals.values())))
        return page_source(rows, place, tools, url=str(self.url), match=self.match)


def page_source(
    page: Engine,
    place: Place,
    tools: Tools,
    *,
    url: str,
    match: Mapping[str, str] | None = None,
    prepare: Callable[[Page], Page] | None = None,
) -> ScrapeSource:
    """Return the source of a page that is no engine's: `page` names its rows.

    `prepare` puts a page into the form that the rows expect, before `match` and the rows see it.
    """
    target = ScrapeTarget(
        tier=place.tier,
        id=place.target,
        url=url,
        page=page,
        match=match or {},
        prepare=prepare,
        neighbour=place.neighbour,
    )
    limits = FetchLimits(timeout_seconds=tools.timeout_seconds)
    source = ScrapeSource(
        target,
        client=tools.client,
        now=tools.now,
        monotonic=tools.monotonic,
        limits=limits,
        wanted=frozenset(),
    )
    source.share(tools.pools)
    return source


def _row(signal: str, family: str) -> Row:
    take: Literal["value", "histogram"] = "value"
    if SIGNALS[signal].kind is Kind.HISTOGRAM:
        take = "histogram"
    label = SIGNALS[signal].label
    return Row(signal, (Alias((Term(normal_name(family), take=take, part_label=label),)),))
