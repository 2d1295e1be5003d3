"""Restarts of a target's container, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.offered import Subject, unjudged
from detectors.records import Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "container_restarted"
SIGNAL = "restarts_total"
KILLED = "OOMKilled"
MOST_REASONS = 12
_VERSION = 1  # of the memory's layout


class RestartsConfig(BaseModel):
    """Settings of the detector of restarts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["restarts"] = "restarts"
    name: str = Field(default="restarts", max_length=64, description="Unique in a tier.")
    hold_seconds: float = Field(
        default=600, gt=0, description="Told for so long after the last restart."
    )
    loop: int = Field(default=3, ge=2, description="So many without a pause of that time: a loop.")
    stale_seconds: float = Field(default=120, gt=0, description="Older readings are not judged.")

    def build(self) -> Restarts:
        """Return the detector with these settings."""
        return Restarts(self)


@dataclass(frozen=True, slots=True)
class RestartsMemory:
    """What is known of the counter.

    `counts` by reason at the last usable scrape, None before the first; `since_seconds` the
    watched time since the last restart, None if there was none; `lately` counts those without a
    pause, `reason` is the worst of their reasons.
    """

    counts: dict[str, float] | None = field(default=None)
    seen_seconds: float | None = None
    since_seconds: float | None = None
    lately: float = 0.0
    reason: str = ""


class Restarts:
    """Tells each restart of the container once more than the engine's page can.

    Input: `restarts_total` with its reasons, from kube-state-metrics or cAdvisor. Silent where
    neither is a source.
    Parameters: `hold_seconds`, for which a restart is told; `loop`, the number of restarts without
    such a pause that is a crash loop.
    Verdict: critical for a kill for memory (`OOMKilled`) and for a loop, else warning; statistic is
    the number of restarts without a pause, threshold 1. What was there at first sight is no news.
    Smallest change seen: one restart.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float, killed: float) -> Reading:
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), second, 0.01,
    ...                    values={"restarts_total": 3 + killed},
    ...                    parts={"restarts_total": {"Completed": 3.0, "OOMKilled": killed}})
    >>> restarts = RestartsConfig().build()
    >>> memory, (verdict,) = restarts.step(restarts.start(), scrape(0, 0))
    >>> memory, (verdict,) = restarts.step(memory, scrape(5, 1))
    >>> str(verdict.level), verdict.reason
    ('critical', '1 restart, the last 0 s ago: OOMKilled')

    *Trade-offs*: a page tells the reason of the last end only, so of several restarts between two
    reads the others are `unknown`. A restart that was meant (a deployment in place) is a warning
    too; a new pod is not a restart.
    """

    def __init__(self, config: RestartsConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({SIGNAL})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, SIGNAL, CAUSE)

    def start(self) -> RestartsMemory:
        return RestartsMemory()

    def step(
        self, memory: RestartsMemory, reading: Reading
    ) -> tuple[RestartsMemory, tuple[Verdict, ...]]:
        stale = self.config.stale_seconds
        unknown = unjudged(self._subject, reading, (SIGNAL,), stale_seconds=stale)
        if unknown is not None:
            return replace(memory, seen_seconds=None), unknown
        memory = self._advanced(memory, reading)
        return memory, (self._judged(memory, reading),)

    def _advanced(self, memory: RestartsMemory, reading: Reading) -> RestartsMemory:
        now, counts = reading.monotonic_seconds, _by_reason(reading)
        since, lately, reason = memory.since_seconds, memory.lately, memory.reason
        if since is not None and memory.seen_seconds is not None:
            since += max(now - memory.seen_seconds, 0.0)
        if since is not None and since > self.config.hold_seconds:
            since, lately, reason = None, 0.0, ""
        known = memory.counts
        rises = {} if known is None else {it: n - known.get(it, 0.0) for it, n in counts.items()}
        rises = {it: rise for it, rise in rises.items() if rise > 0}
        if rises:
            since, lately = 0.0, lately + sum(rises.values())
            reason = KILLED if KILLED in (reason, *rises) else max(rises, key=rises.__getitem__)
        return RestartsMemory(counts, now, since, lately, reason)

    def _judged(self, memory: RestartsMemory, reading: Reading) -> Verdict:
        level, reason = Level.OK, f"{reading.values[SIGNAL]:g} restarts in all, none of late"
        if memory.since_seconds is not None:
            bad = memory.reason == KILLED or memory.lately >= self.config.loop
            level = Level.CRITICAL if bad else Level.WARNING
            plural = "s" if memory.lately > 1 else ""
            reason = (
                f"{memory.lately:g} restart{plural}, the last {memory.since_seconds:.0f} s ago: "
                f"{memory.reason}"
            )
        return reading.verdict(
            self.name,
            SIGNAL,
            level,
            reason=reason,
            statistic=memory.lately,
            threshold=1.0,
            cause=CAUSE,
            details={"breached": float(level is Level.CRITICAL)},
        )

    def save(self, memory: RestartsMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> RestartsMemory:
        # Nobody watched between `save` and `load`, however short that was.
        return replace(unpack(data, RestartsMemory, mark=self._mark), seen_seconds=None)


def _by_reason(reading: Reading) -> dict[str, float]:
    parts = reading.parts.get(SIGNAL) or {"unknown": reading.values[SIGNAL]}
    return dict(sorted(parts.items())[:MOST_REASONS])
