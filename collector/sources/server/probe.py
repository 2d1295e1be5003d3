"""The health probe: now and then one token of a fixed prompt, to see that the engine still works.

A page can look healthy while the engine behind it has stopped. Lowest priority: under load nothing
is asked, and the reading says so. A queue in front of an engine that makes no token is no load but
the very doubt that the probe is for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from collector.sources.protocols import Place, ScrapeStats, Source, Tools
from collector.sources.server.asking import Asking, server_base
from collector.sources.server.calm import busy, memory_margin_ratio
from collector.sources.server.generating import Api, Came, Generator
from collector.values import Seconds
from detectors.records import Absence, Reading
from detectors.remarks import Finding

KIND: Final = "probe"
PROMPT: Final = "One, two, three,"
STILL_SECONDS: Final = 20.0  # a third of the time after which the stalled detector is sure
_WORK: Final = ("generation_tokens_total", "prompt_tokens_total")


class ProbeConfig(BaseModel):
    """One token of a fixed prompt now and then: does the engine answer, how fast, what is free."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["probe"] = "probe"
    interval: Seconds = Field(default=30.0, description="Time between probes.")
    timeout: Seconds = Field(default=10.0, description="Longer without an answer is a failure.")
    api: Api = Field(
        default="auto",
        description="Which route is asked: `completions`, `chat`, `generate` (TGI); `auto` tries.",
    )
    model: str = Field(
        default="", max_length=512, description="Model to ask for; the first listed if empty."
    )
    margin: float = Field(
        default=0.10, ge=0, lt=1, description="A smaller free share of memory is a finding."
    )

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        return ProbeSource(self, place, tools)


@dataclass(frozen=True, slots=True)
class _Probed:
    """One probe: what came, and in which time; `busy` also where it was not even tried."""

    came: Came
    seconds: float = 0.0
    problem: str = ""


class ProbeSource:
    """Probes one target. `notice` tells it the load and the memory that is left."""

    def __init__(self, config: ProbeConfig, place: Place, tools: Tools) -> None:
        self.name = f"{KIND}:{place.tier}/{place.target}"
        self._config = config
        self._place = place
        self._tools = tools
        asking = Asking(tools.client, server_base(place.url), place.headers, config.timeout)
        self._generator = Generator(asking, api=config.api, model=config.model)
        self._noticed: Reading | None = None
        self._work: tuple[float | None, ...] = ()
        self._worked_at = 0.0
        self._outcomes: Counter[str] = Counter()

    def notice(self, reading: Reading) -> None:
        """Take the newest scrape of the target's page, and whatever joined it."""
        self._noticed = reading
        work = tuple(map(reading.values.get, _WORK))
        if work != self._work or work[0] is None:
            self._work, self._worked_at = work, reading.monotonic_seconds
        self._generator.engine = reading.identity.engine or self._generator.engine

    async def read(self) -> Reading:
        """Probe, unless the engine is busy; trouble is in the reading, never raised."""
        started = self._tools.monotonic()
        reason = "" if self._stands_still() else busy(self._noticed)
        probed = _Probed("busy", problem=reason) if reason else await self._probe()
        self._outcomes[probed.came] += 1
        return self._reading(probed, started)

    def stats(self) -> ScrapeStats:
        return ScrapeStats(outcomes=dict(self._outcomes))

    async def close(self) -> None:
        """Hold nothing open: the client is shared."""

    def _stands_still(self) -> bool:
        """Say whether the page has told of no work for a while, as a hanging engine does."""
        noticed = self._noticed
        if noticed is None or not noticed.up:
            return False
        return noticed.monotonic_seconds - self._worked_at >= STILL_SECONDS

    async def _probe(self) -> _Probed:
        started = self._tools.monotonic()
        found = await self._generator.ask(PROMPT)
        seconds = self._tools.monotonic() - started
        return _Probed(found.came, seconds, found.problem)

    def _reading(self, probed: _Probed, started: float) -> Reading:
        ended = self._tools.monotonic()
        failed = probed.came == "failed"
        values = {"up": float(not failed), "scrape_seconds": ended - started}
        absent = {}
        if probed.came == "answered":
            values |= {"probe_up": 1.0, "probe_seconds": probed.seconds}
        elif failed:
            values["probe_up"] = 0.0
            absent["probe_seconds"] = Absence.SCRAPE_FAILED
        else:
            why = Absence.UNUSABLE if probed.came == "refused" else Absence.SKIPPED
            absent |= dict.fromkeys(("probe_up", "probe_seconds"), why)
        margin = memory_margin_ratio(self._noticed)
        if margin is None:
            absent["probe_memory_margin_ratio"] = Absence.NO_DATA
        else:
            values["probe_memory_margin_ratio"] = margin
        return Reading(
            tier=self._place.tier,
            target=self._place.target,
            source=KIND,
            at=self._tools.now(),
            monotonic_seconds=ended,
            scrape_seconds=ended - started,
            values=values,
            absent=absent,
            problem=f"the probe failed: {probed.problem}" if failed else "",
            findings=self._findings(probed, margin),
        )

    def _findings(self, probed: _Probed, margin: float | None) -> tuple[Finding, ...]:
        found = []
        if probed.came == "refused":
            text = f"the probe cannot be made: {probed.problem}; set its `api` and `model`"
            found.append(Finding("probe_refused", "probe_up", text))
        if margin is not None and margin < self._config.margin:
            text = (
                f"{margin:.3f} of the memory is free, under the margin {self._config.margin:g}; "
                "give the engine less of it, or set a smaller `margin`"
            )
            found.append(Finding("probe_memory_margin_low", "probe_memory_margin_ratio", text))
        return tuple(found)
