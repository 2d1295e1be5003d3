"""What a server says of itself beside its metrics: limits, exact version, model, what has changed.

Asked once at the start, again when its page shows a restart, a recovery or another version, and
every ten minutes. Nothing that is asked makes the engine work (TGI's `/health` would).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from collector.sources.protocols import Place, ScrapeStats, Source, Tools
from collector.sources.server.asking import Answer, Asking, server_base
from collector.sources.server.changes import Facts, another_server, changes
from collector.sources.server.facts_told import Endpoint, endpoints_of
from collector.values import Seconds
from detectors.records import Absence, Identity, Reading
from detectors.remarks import Finding, Noticed

KIND: Final = "facts"
OFFERED: Final = (
    *("context_tokens", "request_slots"),
    *("kv_cache_capacity_tokens", "batch_token_budget"),
)
_MISSING: Final = frozenset({404, 405, 501})  # this server has no such route
_REFUSED: Final = frozenset({401, 403})
_MOST_DOUBLINGS: Final = 8


class FactsConfig(BaseModel):
    """What the server says of itself beside its page; every target is asked unless it is off."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["facts"] = "facts"
    enabled: bool = Field(default=True, description="False asks the server nothing.")
    interval: Seconds = Field(
        default=15.0, description="How often to look whether there is a reason to ask."
    )
    refresh: Seconds = Field(default=600.0, description="Asked again after this time anyway.")
    timeout: Seconds = Field(default=10.0, description="Longest wait for one answer.")

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        return FactsSource(self, place, tools)


def default_facts() -> FactsConfig:
    """Return the settings for a target whose configuration names none."""
    return FactsConfig()


class FactsSource:
    """Asks one server about itself, one question at a time. `notice` says when to ask again."""

    def __init__(self, config: FactsConfig, place: Place, tools: Tools) -> None:
        self.name = f"{KIND}:{place.tier}/{place.target}"
        self.facts = Facts()
        self._config = config
        self._place = place
        self._tools = tools
        self._asking = Asking(tools.client, server_base(place.url), place.headers, config.timeout)
        self._due = True
        self._next_at = 0.0
        self._failures = 0
        self._missing: set[str] = set()
        self._refused = ""
        self._problem = ""
        self._anew = False  # what was asked is not what answers now
        self._down = False
        self._identity = Identity()  # what the page says
        self._outcomes: Counter[str] = Counter()

    def notice(self, reading: Reading) -> None:
        """Look at a scrape of the target's page for a reason to ask again."""
        returned = reading.up and self._down
        another = reading.up and another_server(self._identity, reading.identity)
        self._anew |= reading.restarted or another
        if reading.restarted or returned or another:
            self._due, self._failures, self._next_at = True, 0, 0.0
            self._missing.clear()
        self._down = not reading.up
        if reading.identity.engine:
            self._identity = reading.identity

    async def read(self) -> Reading:
        """Ask what is due, and say what is known; trouble is in the reading."""
        started = self._tools.monotonic()
        noticed: tuple[Noticed, ...] = ()
        if self._config.enabled and self._due_at(started):
            noticed = await self._ask()
        return self._reading(started, noticed)

    def stats(self) -> ScrapeStats:
        return ScrapeStats(outcomes=dict(self._outcomes))

    async def close(self) -> None:
        """Hold nothing open: the client is shared."""

    def _due_at(self, moment: float) -> bool:
        """Say whether to ask now; a server that is down and known is left alone."""
        if self._down and self.facts != Facts():
            return False
        return self._due or moment >= self._next_at

    async def _ask(self) -> tuple[Noticed, ...]:
        """Ask every endpoint in turn, and take over what they said."""
        engine = self._identity.engine
        found, last = Facts(engine=engine), Answer()
        self._refused = self._problem = ""
        usable = 0
        for endpoint in endpoints_of(engine or self.facts.engine):
            if endpoint.path in self._missing:
                continue
            last = await self._asking.ask(endpoint.path)
            usable += last.usable
            found = found.filled_from(self._told(endpoint, last))
            if last.status == 0:
                break  # one wait a round, not one an endpoint
        self._plan(last, usable)
        if self._problem:
            return ()
        return self._take_over(found)

    def _told(self, endpoint: Endpoint, answer: Answer) -> Facts:
        if answer.usable:
            return endpoint.told(answer.body)
        if answer.status in _MISSING:
            self._missing.add(endpoint.path)
        elif answer.status in _REFUSED:
            self._refused = endpoint.path
        return Facts()

    def _plan(self, last: Answer, usable: int) -> None:
        """Decide when to ask again: silence is tried again soon, then ever less often."""
        moment = self._tools.monotonic()
        self._due = False
        silent = last.status == 0 and bool(last.problem)
        told = usable or (not silent and (self._missing or self._refused))
        self._outcomes["read" if told else "failed"] += 1
        if not told:
            self._problem = last.problem or "answered nothing that can be used"
        if told and not silent:
            self._failures = 0
            self._next_at = moment + self._config.refresh
            return
        wait = self._config.interval * 2 ** min(self._failures, _MOST_DOUBLINGS)
        self._failures += 1
        self._next_at = moment + min(wait, self._config.refresh)

    def _take_over(self, found: Facts) -> tuple[Noticed, ...]:
        known = self.facts
        if found.engine and known.engine and found.engine != known.engine:
            self.facts = found  # another server at the same address: nothing of the old one holds
            self._anew = False
            return (Noticed("engine", known.engine, found.engine), *changes(Facts(), found))
        self.facts = found.filled_from(known)
        if self._anew:  # a limit holds until a restart
            self.facts = replace(self.facts, **{it: getattr(found, it) for it in OFFERED})
        self._anew = False
        return changes(known, self.facts)

    def _reading(self, started: float, noticed: tuple[Noticed, ...]) -> Reading:
        """Say what is known; a limit does not age, it holds until a restart."""
        ended = self._tools.monotonic()
        values, up = self.facts.values, not self._problem
        why = Absence.NO_FAMILY if up else Absence.SCRAPE_FAILED
        return Reading(
            tier=self._place.tier,
            target=self._place.target,
            source=KIND,
            at=self._tools.now(),
            monotonic_seconds=ended,
            scrape_seconds=ended - started,
            values={**values, "up": float(up), "scrape_seconds": ended - started},
            absent={it: why for it in OFFERED if it not in values},
            identity=self.facts.identity,
            problem=self._problem,
            findings=self._findings(),
            noticed=noticed,
        )

    def _findings(self) -> tuple[Finding, ...]:
        if not self._refused:
            return ()
        text = (
            f"{self._refused} of the server wants credentials, so its limits and its model are not "
            "read; give the target's key, or state request_slots and kv_cache_capacity_tokens"
        )
        return (Finding("facts_refused", "context_tokens", text),)
