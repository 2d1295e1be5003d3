"""One look at the page behind an address: what it is, what it tells, what it does not and why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpx2

from collector.doctor.other_kinds import Addition, OtherKind, other_kind
from collector.sources.credentials import CredentialFiles, headers_for
from collector.sources.engine.enabling import how_to_enable, needed_signals
from collector.sources.engine.missing import why_missing
from collector.sources.fetch import FetchLimits
from collector.sources.joined import Companion, JoinedSource
from collector.sources.protocols import Place, Tools
from collector.sources.scrape import ScrapeSource, ScrapeTarget, metrics_url
from collector.sources.server.facts import default_facts
from detectors.records import Absence, Reading
from detectors.remarks import Finding
from detectors.signals import READING_SIGNALS, Signal

SKEW_SECONDS: Final = 2.0  # HTTP dates are whole seconds
SLOW_SECONDS: Final = 1.0
_OWN: Final = frozenset({"up", "scrape_seconds"})
_NO_ENGINE: Final = Finding(
    "no_engine",
    "",
    "the page has no family of an engine, nor of another source that Fusewire knows; name its "
    "families with 'sources: [{kind: page, ...}]'",
)


@dataclass(frozen=True, slots=True)
class SignalReport:
    """One signal of a page: its value and the families that feed it, or why there is none."""

    signal: str
    unit: str
    value: float | None
    fed_by: str
    needed: bool
    why: str = ""
    remedy: str = ""

    @property
    def missing(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True)
class Examination:
    """What one address turned out to be; `engine` is empty if it is no engine's page.

    `skew_seconds` is the server's clock less ours, None where it does not say; `problem` is why
    there was no page at all. `addition` says how another page that Fusewire reads is configured.
    """

    url: str
    engine: str
    version: str
    model: str
    problem: str
    scrape_seconds: float
    skew_seconds: float | None
    signals: tuple[SignalReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    addition: Addition | None = None

    @property
    def well(self) -> bool:
        """Whether the page is there and nothing that detectors need is missing."""
        lacking = any(it.missing and it.needed for it in self.signals)
        there = any(not it.missing for it in self.signals)
        return not self.problem and there and not lacking


@dataclass(frozen=True, slots=True)
class Instruments:
    """What an examination works with."""

    client: httpx2.AsyncClient
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    timeout_seconds: float = 15.0
    files: CredentialFiles = field(default_factory=CredentialFiles)
    insecure_http: bool = False  # send credentials over plain http to another machine
    between_seconds: float = 1.0  # two scrapes, for rates and what moves


async def examine(url: str, tools: Instruments) -> Examination:
    """Scrape an address twice, ask its server for its limits, and report.

    Trouble of the address is in the examination, never raised.
    """
    headers = headers_for(url, tools.files, insecure_http=tools.insecure_http)
    target = ScrapeTarget(tier="doctor", id="target", url=url, headers=headers)
    place = Place("doctor", "target", url, headers=headers)
    given = Tools(tools.client, tools.now, tools.monotonic, tools.timeout_seconds)
    main = ScrapeSource(
        target,
        client=tools.client,
        now=tools.now,
        monotonic=tools.monotonic,
        limits=FetchLimits(timeout_seconds=tools.timeout_seconds),
    )
    facts = default_facts().build(place, given)
    joined = JoinedSource(main, [Companion(facts, 3600.0)], monotonic=tools.monotonic)
    reading = await joined.read()
    skew: float | None = None
    if reading.up:
        skew = await _skew(metrics_url(url), headers, tools)
        await joined.keep(0, await facts.read())
        await tools.sleep(tools.between_seconds)
        reading = await joined.read()
    await joined.close()
    found = _report(url, reading, main.stats().aliases, skew)
    if not reading.up or found.engine:
        return found
    other = await other_kind(url, given)
    if other is None:
        return replace(found, findings=(*found.findings, _NO_ENGINE))
    return _other_report(found, other)


async def _skew(url: str, headers: Mapping[str, str], tools: Instruments) -> float | None:
    """Return the server's clock less ours in seconds, None if it does not tell."""
    try:
        async with (
            asyncio.timeout(tools.timeout_seconds),
            tools.client.stream(
                "GET", url, headers=dict(headers), follow_redirects=False
            ) as response,
        ):
            stated = response.headers.get("date", "")
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError):
        return None  # the scrape that follows says what is wrong
    try:
        return (parsedate_to_datetime(stated) - tools.now()).total_seconds()
    except (TypeError, ValueError):
        return None


def _report(
    url: str, reading: Reading, aliases: Mapping[str, str], skew: float | None
) -> Examination:
    identity = reading.identity
    found = Examination(
        url=url,
        engine=identity.engine,
        version=identity.version,
        model=identity.model,
        problem=reading.problem,
        scrape_seconds=reading.scrape_seconds,
        skew_seconds=skew,
    )
    if not reading.up:
        return found
    reports = tuple(_signal(it, reading, aliases) for it in _spoken_of(reading))
    if not identity.engine:
        reports = tuple(it for it in reports if not it.missing)
    findings = (*reading.findings, *_of_the_scrape(found))
    return replace(found, signals=reports, findings=findings)


def _other_report(found: Examination, other: OtherKind) -> Examination:
    """Say what another source reads on the page, in place of what an engine's would."""
    known = [it for it in _spoken_of(other.reading) if it.name in other.reading.known]
    return replace(
        found,
        signals=tuple(_signal(it, other.reading, other.fed_by) for it in known),
        findings=(*_of_the_scrape(found), *other.findings),
        addition=other.addition,
    )


def _spoken_of(reading: Reading) -> Sequence[Signal]:
    known = reading.known | (needed_signals(reading.identity.engine) - _OWN)
    return [it for it in READING_SIGNALS if it.name in known and it.name not in _OWN]


def _signal(signal: Signal, reading: Reading, aliases: Mapping[str, str]) -> SignalReport:
    name, identity = signal.name, reading.identity
    value = reading.values.get(name)
    if value is None and name in reading.histograms:
        value = reading.histograms[name].total
    needed = name in needed_signals(identity.engine)
    if value is not None:
        return SignalReport(name, signal.unit, value, aliases.get(name, "asked"), needed)
    known = why_missing(identity.engine, identity.version, name)
    why = known or reading.absence(name).partition(": ")[2]
    remedy = how_to_enable(identity.engine, name)
    of_any = remedy == how_to_enable(identity.engine, "up")
    if of_any and (known or reading.absent.get(name) is Absence.TOO_FEW):
        remedy = ""  # switching the page on does not bring what the version lacks
    return SignalReport(name, signal.unit, None, "", needed, why, remedy)


def _of_the_scrape(found: Examination) -> Sequence[Finding]:
    findings = []
    if found.skew_seconds is not None and abs(found.skew_seconds) > SKEW_SECONDS:
        text = f"its clock is {found.skew_seconds:+.0f} s off ours; run NTP on both"
        findings.append(Finding("clock_skew", "", text))
    if found.scrape_seconds > SLOW_SECONDS:
        text = (
            f"a scrape takes {found.scrape_seconds:.1f} s; scrape_interval should be well above, "
            "and scrape_timeout too"
        )
        findings.append(Finding("slow_page", "scrape_seconds", text))
    return findings
