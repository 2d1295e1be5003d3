"""An engine that has work and makes no tokens, behind a page that looks healthy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from detectors.records import Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "engine_stalled"
_VERSION = 2  # of the memory's layout
_FAILED = "; its probe failed, too"
_MADE, _TAKEN, _STEPS = "generation_tokens_total", "prompt_tokens_total", "engine_steps_total"
_NEEDED = ("requests_running", _MADE, _TAKEN)
_STEPPING = (_STEPS, "requests_waiting")


class StalledConfig(BaseModel):
    """Settings of the stalled-engine detector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["stalled"] = "stalled"
    name: str = Field(default="stalled", max_length=64, description="Unique in a tier.")
    quiet_seconds: float = Field(
        default=60, gt=0, description="Work without a token for longer than this is a stall."
    )
    cold_seconds: float = Field(
        default=300, gt=0, description="The same for an engine that has made no token since start."
    )
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")

    @model_validator(mode="after")
    def _cold_is_longer(self) -> Self:
        if self.cold_seconds < self.quiet_seconds:
            msg = (
                f"cold_seconds {self.cold_seconds:g} must not be under "
                f"quiet_seconds {self.quiet_seconds:g}"
            )
            raise ValueError(msg)
        return self

    def build(self) -> Stalled:
        """Return the detector with these settings."""
        return Stalled(self)


@dataclass(frozen=True, slots=True)
class StalledMemory:
    """What is known of an engine's progress.

    `counts` are the counters of progress at the last usable scrape, None before the first;
    `seen_seconds` its monotonic time, None when nothing was watched just before;
    `quiet_seconds` how long it has been watched having work and making nothing; `warm` whether
    it has made a token since it started.
    """

    counts: dict[str, float] | None = None
    seen_seconds: float | None = None
    quiet_seconds: float = 0.0
    warm: bool = False


class Stalled:
    """Raises when requests are in the engine and no counter of its progress moves.

    Inputs: `requests_running`, `generation_tokens_total`, `prompt_tokens_total`; `requests_waiting`
    where told (a queue in front of an empty batch is work too); `engine_steps_total` of engines
    that count an answer's tokens at its end (TGI, SGLang, llama.cpp): there steps are progress too,
    so a long answer is no stall, and prompts are not (TGI counts them on arrival), so a queue while
    steps stand still is one; a queue that grows while steps are made is an overstated gauge at
    worst, and none of this detector's business. `probe_up` where a probe is
    configured: one that was answered within the quiet time keeps the verdict at warning, as then
    the page stands still and not the engine. Without a probe the counters alone decide.
    Parameters: `quiet_seconds`, and `cold_seconds` for an engine that has made no token since it
    started (a first step can take minutes: compilation, kernel search).
    Only time that was watched counts: it adds up between scrapes in a row that both show work and
    equal counters. A failed scrape in between, or a restart of Fusewire, adds nothing and takes
    nothing back; progress of a counter, or an engine without work, sets it to 0, and a
    restart of the engine to a cold one.
    Verdict: critical beyond the limit (but for an answered probe), warning beyond half of it;
    statistic is the quiet time in seconds, threshold the limit.
    Smallest change seen: a full stop of `quiet_seconds` plus one scrape. One target is judged;
    a tier whose engines all slow down but still move is another detector's business.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float, tokens: float) -> Reading:
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), second, 0.01,
    ...                    values={"requests_running": 4, "generation_tokens_total": tokens,
    ...                            "prompt_tokens_total": 100})
    >>> stalled = StalledConfig().build()
    >>> memory = stalled.start()
    >>> for second in range(0, 75, 5):
    ...     memory, (verdict,) = stalled.step(memory, scrape(second, min(7.0 + second, 12.0)))
    >>> str(verdict.level), verdict.reason
    ('critical', 'no token for 65 s with 4 running, 0 waiting; limit 60 s')

    *Trade-offs*: vLLM moves its counters only for steps that return output, so one very long
    chunked prefill alone in the engine looks stalled; raise `quiet_seconds` above the longest
    prefill you allow, or confirm with a probe. An engine that dies while idle is not seen (there
    is no work to be late with). Cold engines are given `cold_seconds`, so one that never starts
    to work is found late.
    """

    def __init__(self, config: StalledConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({*_NEEDED, "requests_waiting"})
        self._mark = mark_of(config, version=_VERSION)

    def start(self) -> StalledMemory:
        return StalledMemory()

    def step(
        self, memory: StalledMemory, reading: Reading
    ) -> tuple[StalledMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = StalledMemory()
        obstacle = self._obstacle(reading)
        if obstacle:
            unknown = reading.verdict(
                self.name, "generation_tokens_total", Level.UNKNOWN, reason=obstacle, cause=CAUSE
            )
            return replace(memory, seen_seconds=None), (unknown,)
        memory = _advanced(memory, reading)
        return memory, (self._judged(memory, reading),)

    def _obstacle(self, reading: Reading) -> str:
        """Say why a reading cannot be judged; steps and a queue will do where tokens are not told.

        TGI has no family before its first use, and tells tokens when the first request ends.
        """
        stepping = _STEPS in reading.values and not reading.values.keys() >= set(_NEEDED)
        needed = _STEPPING if stepping else _NEEDED
        return reading.obstacle(needed, stale_seconds=self.config.stale_seconds)

    def _judged(self, memory: StalledMemory, reading: Reading) -> Verdict:
        limit = self.config.quiet_seconds if memory.warm else self.config.cold_seconds
        quiet = memory.quiet_seconds
        probe = self._probed(reading, quiet)
        stalled = quiet > limit and probe != 1.0
        level = Level.WARNING if quiet > limit / 2 else Level.OK
        if stalled:
            level = Level.CRITICAL
        running, waiting = _running(reading), _waiting(reading)
        made = "step" if _STEPS in reading.values else "token"
        if quiet > 0:
            reason = f"no {made} for {quiet:.0f} s with {running:g} running, {waiting:g} waiting"
            reason += f"; limit {limit:g} s" if memory.warm else f"; cold, limit {limit:g} s"
        else:
            reason = f"{made}s are made" if running + waiting else "no work"
        if quiet > limit and probe is not None:
            reason += "; its probe was answered: the page stands still" if probe else _FAILED
        return reading.verdict(
            self.name,
            "generation_tokens_total",
            level,
            reason=reason,
            statistic=quiet,
            threshold=limit,
            cause=CAUSE,
            details={"breached": float(stalled), "running": running, "waiting": waiting},
        )

    def _probed(self, reading: Reading, quiet: float) -> float | None:
        """Return `probe_up` of a probe that was made during the quiet time, None without one."""
        fresh = reading.age_of("probe_up") <= min(quiet, self.config.stale_seconds)
        return reading.values.get("probe_up") if fresh else None

    def save(self, memory: StalledMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> StalledMemory:
        # Nobody watched between `save` and `load`, however short that was.
        return replace(unpack(data, StalledMemory, mark=self._mark), seen_seconds=None)


def _waiting(reading: Reading) -> float:
    return reading.values.get("requests_waiting", 0.0)


def _running(reading: Reading) -> float:
    return reading.values.get("requests_running", 0.0)


def _advanced(memory: StalledMemory, reading: Reading) -> StalledMemory:
    """Return the memory after a usable scrape."""
    values = reading.values
    telling = (_MADE, _STEPS) if _STEPS in values else (_MADE, _TAKEN)
    counts = {signal: values[signal] for signal in telling if signal in values}
    now = reading.monotonic_seconds
    if memory.counts is None:  # first sight, or first since a restart
        begun = max(counts.get(_MADE, 0.0), counts.get(_STEPS, 0.0)) > 0
        return StalledMemory(counts, now, 0.0, begun and not reading.restarted)
    moved = any(counts[it] != memory.counts.get(it, counts[it]) for it in counts)
    busy = _running(reading) + _waiting(reading) > 0
    quiet = 0.0
    if busy and not moved:
        watched = now - memory.seen_seconds if memory.seen_seconds is not None else 0.0
        quiet = memory.quiet_seconds + max(watched, 0.0)
    return StalledMemory(memory.counts | counts, now, quiet, memory.warm or moved)
