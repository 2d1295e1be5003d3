"""A client of the tier: a batch controller or a streaming proxy, by the metrics page it serves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator

from collector.sources.engine.engines import Alias, Engine, Filter, Row, Term
from collector.sources.other_pages import page_source
from collector.sources.page.families import normal_name
from collector.sources.protocols import Place, ScrapeStats, Source, Tools
from collector.sources.scrape import ScrapeSource
from collector.values import HttpUrl, Seconds, refuse
from detectors.records import Reading
from detectors.remarks import Finding

_TOO_MANY: Final = frozenset({"429"})
_REQUESTS: Final = "openai_api_requests_total"
_STATUS_LABELS: Final = ("status", "status_code", "code")
_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?")
_MATCHER = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)(=~|!=|=)"([^"\\]*)"')

ClientSignal: TypeAlias = Literal[
    "client_requests_total",
    "client_rate_limited_total",
    "client_retries_total",
    "client_queue_size",
    "client_queue_bound",
    "client_streams_active",
    "memory_rss_bytes",
]


def _named(*families: str) -> tuple[Term, ...]:
    return tuple(Term(family) for family in families)


DEFAULT_TERMS: Final[Mapping[ClientSignal, tuple[Term, ...]]] = MappingProxyType(
    {
        "client_requests_total": _named(_REQUESTS, "openai_api_requests"),
        "client_rate_limited_total": (
            *_named("openai_api_rate_limited_total", "openai_api_rate_limited"),
            *(Term(_REQUESTS, keep=((label, _TOO_MANY),)) for label in _STATUS_LABELS),
        ),
        "client_retries_total": _named(
            "openai_api_rate_limit_retries_total", "openai_api_rate_limit_retries"
        ),
        "client_queue_size": _named("openai_api_queue_size"),
        "client_queue_bound": _named("openai_api_queue_bound"),
        "client_streams_active": _named("stream_active_buffers"),
        "memory_rss_bytes": _named("process_resident_memory_bytes"),
    }
)


class ClientConfig(BaseModel):
    """A client of the tier (a batch controller, a streaming proxy), by its metrics page."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["client"] = "client"
    url: HttpUrl = Field(description="Address of its metrics page (`/metrics` is added if bare).")
    names: Mapping[ClientSignal, str] = Field(
        default_factory=dict,
        description="Family that feeds a signal, where it is not the default one; labels may "
        'choose series: `my_requests_total{status="429"}`.',
    )
    match: Mapping[str, str] = Field(
        default_factory=dict, description="Labels that every series must carry to be read."
    )
    queue_bound: int | None = Field(
        default=None, ge=1, description="Most requests that may wait, if the page lacks it."
    )
    memory_limit: int | None = Field(
        default=None, ge=1, description="Memory limit of the client in bytes."
    )
    interval: Seconds = Field(default=15.0, description="Time between reads.")

    @field_validator("names")
    @classmethod
    def _readable(cls, value: Mapping[ClientSignal, str]) -> Mapping[ClientSignal, str]:
        for text in value.values():
            selector(text)
        return value

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        rows = tuple(
            _row(signal, (selector(self.names[signal]),) if signal in self.names else terms)
            for signal, terms in DEFAULT_TERMS.items()
        )
        if self.memory_limit is not None:  # no page has it; a failed read tells it as missing
            rows = (*rows, Row("memory_limit_bytes", ()))
        page = page_source(
            Engine("client", "", rows), place, tools, url=str(self.url), match=self.match
        )
        stated = {"client_queue_bound": self.queue_bound, "memory_limit_bytes": self.memory_limit}
        page.learn({it: float(value) for it, value in stated.items() if value is not None})
        return ClientSource(page)


def _row(signal: str, terms: tuple[Term, ...]) -> Row:
    return Row(signal, tuple(Alias((term,)) for term in terms))


def selector(text: str) -> Term:
    """Read a family with labels in the manner of PromQL.

    `=` and `!=` compare with one value, `=~` with several joined by `|`; no other expressions.

    >>> selector('sent_total{status="429"}').keep
    (('status', frozenset({'429'})),)

    Raises:
        PydanticCustomError: If it is anything else.
    """
    found = _SELECTOR.fullmatch(text.strip())
    if found is None:
        refuse("a metric family, or one with labels", 'write for example sent_total{status="429"}')
    keep: Filter = ()
    drop: Filter = ()
    for matcher in filter(None, (it.strip() for it in (found[2] or "").split(","))):
        parts = _MATCHER.fullmatch(matcher)
        if parts is None:
            refuse('labels as name="value"', f"{matcher!r} is none; =, != and =~ are understood")
        label, sign, values = parts.groups()
        wanted = frozenset(values.split("|") if sign == "=~" else (values,))
        if sign == "!=":
            drop = (*drop, (label, wanted))
        else:
            keep = (*keep, (label, wanted))
    return Term(normal_name(found[1]), keep=keep, drop=drop)


class ClientSource:
    """A client's page, with what is amiss in how the client is built."""

    def __init__(self, page: ScrapeSource) -> None:
        self.name = page.name
        self._page = page

    async def read(self) -> Reading:
        """Scrape the page once; trouble of the client is in the reading, never raised."""
        reading = await self._page.read()
        return replace(reading, findings=(*reading.findings, *remarks(reading)))

    def stats(self) -> ScrapeStats:
        return self._page.stats()

    async def close(self) -> None:
        await self._page.close()


def remarks(reading: Reading) -> tuple[Finding, ...]:
    """Return what a reading of a client shows of its making."""
    values, found = reading.values, []
    if "client_queue_size" in values and "client_queue_bound" not in values:
        found.append(unbounded(values["client_queue_size"]))
    retries = values.get("client_retries_total", 0.0)
    if retries > 0.0 and "client_rate_limited_total" not in values:
        text = (
            f"{retries:,.0f} retries are counted, and no answer 429; count those too, as "
            'openai_api_rate_limited_total or under the label status="429" of the requests, or '
            "name what counts them in 'names'"
        )
        found.append(Finding("retries_without_rate_limits_counted", "client_retries_total", text))
    return tuple(found)


def unbounded(size: float) -> Finding:
    """Return the finding about a queue of `size` requests that nobody bounds, or says how."""
    text = (
        f"{size:,.0f} requests wait in a queue without a known bound; bound it where it is made, "
        "and export the bound or configure it here"
    )
    return Finding("queue_without_bound", "client_queue_size", text)
