"""Drift of request signals with a promised number of false alarms, however often one looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from detectors import drift
from detectors.ks import NOT_BY_DEFAULT
from detectors.records import Panel, Verdict
from detectors.saved import mark_of
from detectors.sequential import memory as memories
from detectors.sequential import watch as watching
from detectors.sequential.band import Gate, coarse_rows
from detectors.sequential.memory import Memory
from detectors.sequential.settling import settled
from detectors.sequential.tiers import QUARTER, Budget, Tier
from detectors.sequential.watch import Plan
from detectors.sequential.words import DAY, YEAR
from detectors.sequential_findings import INFORM, PAGE, TRIP, Harm, Look, Rules
from detectors.sequential_judging import Judged, Judging, of_tick
from detectors.sequential_telling import verdicts
from detectors.signals import REQUEST_SIGNALS

MOST_LEVEL = 1e14  # seconds: what single precision holds with a hundred bets
_VERSION = 1  # of the memory's layout and of the list of targets, by which evidence is kept
# Shorter prompts load nothing, and more varied answers are no loops. What is not named harms both
# ways.
HARMFUL: Mapping[str, Harm] = MappingProxyType(
    {
        "prompt_tokens": "up",
        "prompt_chars": "up",
        "prompt_nonprintable_ratio": "up",
        "max_tokens": "up",
        "output_longest_sure_run_tokens": "up",
        "output_distinct_ratio": "down",
        "output_compression_ratio": "down",
        "output_length_capped": "up",
        "output_looping": "up",
    }
)


class SequentialDriftConfig(BaseModel):
    """Settings of a sequential drift detector for the signals of one side."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["sequential"] = "sequential"
    name: str = Field(
        default="", max_length=64, description="Unique in a tier; else SIDE_sequential."
    )
    side: Literal["input", "output"] = Field(
        default="input", description="Prompts or answers; also the cause, SIDE_drift."
    )
    signals: tuple[str, ...] = Field(
        default=(), description="Request signals of that side; empty for all that describe text."
    )
    fleet_streams: int = Field(
        default=1000,
        ge=1,
        description="Streams (signals times scopes) of all tiers and both sides, which share the "
        "budgets of pages and trips; never taken as fewer than this detector has.",
    )
    false_pages: float = Field(
        default=1.0, gt=0, le=1000, description="At most so many (expected) in 90 days, fleet-wide."
    )
    false_trips: float = Field(
        default=1.0, gt=0, le=1000, description="At most so many in 3 years, fleet-wide."
    )
    false_informs: float = Field(
        default=1.0, gt=0, le=1000, description="At most so many in 30 days, of each stream."
    )
    inform_distance: float = Field(default=0.02, ge=0, lt=1, description="Shares may move by it.")
    inform_odds: float = Field(default=1.5, ge=1, le=100, description="Odds may move by it.")
    page_distance: float = Field(default=0.05, ge=0, lt=1, description="The same, to page.")
    page_odds: float = Field(default=2.0, ge=1, le=100, description="The same, to page.")
    trip_distance: float = Field(default=0.10, ge=0, lt=1, description="The same, to trip.")
    trip_odds: float = Field(default=3.0, ge=1, le=100, description="The same, to trip.")
    paging_requests: float = Field(
        default=20_000,
        ge=100,
        description="Independent requests (those of the baseline over its design effect) under "
        "which it informs only.",
    )
    harmful: Mapping[str, Harm] = Field(
        default_factory=dict,
        description="By signal, which way it pages: up, down or both; the rest informs.",
    )
    stale_seconds: float = Field(
        default=300, gt=0, description="Without a request for longer the verdict is unknown."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for signal in (*self.signals, *self.harmful):
            found = drift.side_of(signal)
            if found != self.side:
                msg = f"signal {signal!r} is of the {found} side, expected one of {self.side}"
                raise ValueError(msg)
        level = max(tier.budget.level(self.fleet_streams) for tier in self.tiers())
        if level > MOST_LEVEL:
            msg = (
                f"budgets of one false alarm in {level:.3g} s of a stream, at most "
                f"{MOST_LEVEL:g} s can be promised; allow more, or fewer fleet_streams"
            )
            raise ValueError(msg)
        narrow = (self.inform_distance, self.page_distance, self.trip_distance)
        odds = (self.inform_odds, self.page_odds, self.trip_odds)
        if list(narrow) != sorted(narrow) or list(odds) != sorted(odds):
            msg = (
                f"gates of inform, page, trip: distances {narrow}, odds {odds}; "
                "each must be at least as wide as the one before"
            )
            raise ValueError(msg)
        return self

    def tiers(self) -> tuple[Tier, ...]:
        """Return the tiers of alarm with these gates and budgets."""
        return (
            Tier(
                INFORM,
                Gate(self.inform_distance, self.inform_odds),
                Budget(self.false_informs, 30 * DAY, of_fleet=False),
            ),
            Tier(PAGE, Gate(self.page_distance, self.page_odds), Budget(self.false_pages, QUARTER)),
            Tier(
                TRIP, Gate(self.trip_distance, self.trip_odds), Budget(self.false_trips, 3 * YEAR)
            ),
        )

    def build(self) -> SequentialDrift:
        """Return the detector with these settings."""
        return SequentialDrift(self)


class SequentialDrift:
    """Raises when evidence says that a signal has left the gate around its baseline.

    Inputs: closed ticks of counts for the signals of one side, each with its frozen baseline.
    Statistic: evidence, an alarm from 1. Some sixty bets (shifts, spreads, tails) are placed
    against "every distribution inside the gate"; each pays at most 1 on average under all of
    those, checked to 1e-9 when the baseline is loaded. Their Shiryaev-Roberts sum over A is the
    evidence, requests counting as so many over their design effect.
    Rules: three tiers bet on the same counts, each with its gate and budget. `inform` raises a
    warning; `page` is critical with an active baseline, in a harmful direction; `trip` sets the
    detail `trip` beside it. An alarm stands until the newest traffic is surely within 0.8 of the
    gate, or another baseline is promoted. No number of ticks in a row is asked for.
    Verdict: the reason says the share that moved most, with baseline, gate and live interval, the
    KS distance with a band that holds at every look, requests since the onset, and what else began
    within two ticks. Quiet, it says the promise and the smallest change that is seen. Without
    a baseline, with stale counts, or with fewer requests than a complete change takes, it is
    unknown. A candidate, or a baseline worth fewer than `paging_requests`, informs only.
    Smallest change seen: measured at the defaults with a baseline of 100,000 requests, requests
    until half of the streams were told, to inform and to page: 5 % of prompts 30 times longer 350
    and 620, half a standard deviation 240 and 630, one standard deviation 60 and 120. Each verdict
    prints its own.

    >>> built = SequentialDriftConfig(side="output", false_pages=2).build()
    >>> built.name, [tier.budget.level(1000) / 86400 for tier in built.config.tiers()][:2]
    ('output_sequential', [30.0, 45000.0])

    *Trade-offs*: the promise is for requests that are independent given the past, exactly; for
    sessions and waves it rests on the design effect, which was measured on the baseline's traffic
    and knows nothing of longer waves. Changes inside the gate are never raised, by intent, and
    just outside they take long. Signals are judged one by one: a change of their dependence alone
    is invisible. A stream that nobody uses gathers evidence at the rate of time alone, so that
    after a month of silence its inform tier may raise at the first odd request; that is within its
    budget. Alarms of what is harmless one way inform only until the other way shows.
    """

    def __init__(self, config: SequentialDriftConfig) -> None:
        self.config = config
        self.name = config.name or f"{config.side}_sequential"
        self.signals = frozenset(config.signals) or frozenset(
            row.name
            for row in REQUEST_SIGNALS
            if row.side == config.side and row.name not in NOT_BY_DEFAULT
        )
        tiers = config.tiers()
        self._mark = mark_of(config, version=_VERSION)
        self._judging = Judging(
            signals=self.signals, tiers=tiers, fleet_streams=config.fleet_streams
        )
        self._rules = Rules(
            detector=self.name,
            cause=f"{config.side}_drift",
            stale_seconds=config.stale_seconds,
            paging_requests=config.paging_requests,
            harmful={**HARMFUL, **config.harmful},
            tiers={tier.name: tier for tier in tiers},
            fleet_streams=config.fleet_streams,
        )

    def start(self) -> Memory:
        return memories.nothing()

    def step(self, memory: Memory, panel: Panel) -> tuple[Memory, tuple[Verdict, ...]]:
        judged = self._judging.judged(panel)
        plan, seconds = judged.plan, _tick_seconds(memory, panel)
        if len(judged.rows):
            memory, plan = _taken_in(memory, panel, judged)
        if not len(judged.rows) and not judged.unfit:
            return memory, ()
        look = Look(
            panel=panel,
            judged=judged,
            plan=plan,
            memory=memory,
            evidence=memories.held(memory, plan),
            rules=self._rules,
            tick_seconds=seconds,
        )
        return memory, tuple(verdicts(look))

    def save(self, memory: Memory) -> bytes:
        return memories.save(memory, mark=self._mark)

    def load(self, data: bytes) -> Memory:
        return memories.load(data, mark=self._mark)


def _tick_seconds(memory: Memory, panel: Panel) -> float:
    """Return how long a tick is by its number, also over a pause in which none was closed."""
    before = memory.watch.number
    if before is None or panel.number <= before or panel.monotonic_seconds <= memory.closed:
        return panel.duration_seconds
    return (panel.monotonic_seconds - memory.closed) / (panel.number - before)


def _taken_in(memory: Memory, panel: Panel, judged: Judged) -> tuple[Memory, Plan]:
    """Return the memory after a tick, and its plan; a repeated tick changes nothing."""
    bands = [null.band for null in judged.nulls]
    counts = coarse_rows(panel.counts[judged.rows], bands, judged.plan.placed.which)
    plan = of_tick(judged, counts.sum(axis=1))
    memory = memories.brought(memory, plan, number=panel.number, closed=panel.monotonic_seconds)
    watch, outcomes = watching.step(
        memory.watch, plan, number=panel.number, seconds=panel.duration_seconds, counts=counts
    )
    if not outcomes:
        return replace(memory, watch=watch), plan
    for tier in plan.tables:
        watch = settled(watch, plan, tier, [null.bets[tier] for null in judged.nulls])
    requests = memory.requests + counts.sum(axis=1)
    return Memory(watch, requests, panel.monotonic_seconds), plan
