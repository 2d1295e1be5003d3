"""The tokens that a batch has reserved, against its budget and against the memory there is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from detectors.hysteresis import Hysteresis
from detectors.line import Line
from detectors.offered import Subject, unjudged
from detectors.records import Absence, Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "batch_budget_full"
_TOKENS, _BUDGET, _WAITING = "batch_tokens", "batch_token_budget", "requests_waiting"
_USED, _LIMIT = "memory_working_set_bytes", "memory_limit_bytes"
_ENGINES = frozenset({"", "tgi", "lorax"})
_VERSION = 1  # of the memory's layout


class BatchBudgetConfig(BaseModel):
    """Settings of the detector of a full batch budget."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["batch_budget"] = "batch_budget"
    name: str = Field(default="batch_budget", max_length=64, description="Unique in a tier.")
    trip: float = Field(default=0.95, gt=0, description="Share of what fits that raises.")
    clear: float = Field(default=0.80, gt=0, description="Cleared at or below this share.")
    memory_share: float = Field(
        default=0.85, gt=0, lt=1, description="Of the memory limit: what a batch may lead to."
    )
    memory_seconds: float = Field(
        default=3600, gt=0, description="What is older hardly counts for the slope."
    )
    fewest: int = Field(default=30, ge=3, description="Scrapes before a slope is believed.")
    correlation: float = Field(
        default=0.8, gt=0, le=1, description="Of memory with tokens, for a slope to be believed."
    )
    breaches: int = Field(default=3, ge=1, le=5, description="Of the last five scrapes, to raise.")
    calms: int = Field(default=3, ge=1, description="Calm scrapes in a row, to clear.")
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")

    @model_validator(mode="after")
    def _band(self) -> Self:
        if self.clear >= self.trip:
            msg = f"clear {self.clear:g} must be under trip {self.trip:g}"
            raise ValueError(msg)
        return self

    def build(self) -> BatchBudget:
        """Return the detector with these settings."""
        return BatchBudget(self)


@dataclass(frozen=True, slots=True)
class BatchBudgetMemory:
    """The container's memory over the batch's tokens, and the persistence of breaches."""

    line: Line = field(default_factory=Line)
    hysteresis: Hysteresis = field(default_factory=Hysteresis)


class BatchBudget:
    """Raises when a TGI batch uses up its budget, or would use up the memory before that.

    Inputs: `batch_tokens`, `batch_token_budget`; `requests_waiting`, and
    `memory_working_set_bytes` with `memory_limit_bytes` where told. Silent on other engines.
    Rules: a straight line through the container's memory over the batch's tokens, of the last
    hour. Where it is believed (`fewest`, `correlation`), the tokens at which memory reaches
    `memory_share` of the limit are what fits, if that is less than the budget. A breach: the batch
    has `trip` of what fits, and requests wait (or memory is what limits it).
    Parameters: `trip`, `clear`, `memory_share`, `memory_seconds`, `fewest`, `correlation`,
    `breaches` of the last five scrapes to raise, `calms` in a row to clear.
    Verdict: warning for a breach that has not lasted, and for a budget that does not fit the
    memory; critical while raised. Statistic is the share of what fits, threshold `trip`, effect
    the bytes a token.
    Smallest change seen: 0.95 of the budget with one request waiting, in three of five scrapes.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float, tokens: float) -> Reading:
    ...     values = {"batch_tokens": tokens, "batch_token_budget": 64_000, "requests_waiting": 2,
    ...               "memory_working_set_bytes": 10e9 + 5e5 * tokens, "memory_limit_bytes": 32e9}
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), second, 0.01,
    ...                    values=values)
    >>> budget = BatchBudgetConfig().build()
    >>> memory = budget.start()
    >>> for step in range(36):
    ...     memory, (verdict,) = budget.step(memory, scrape(5.0 * step, 1000.0 * step))
    >>> str(verdict.level), verdict.reason.split(";")[0]
    ('critical', '35,000 tokens in the batch, 34,400 fit the memory (0.5 MB each, limit 32 GB)')

    *Trade-offs*: a full budget is what a busy TGI is meant to have; it is told only while others
    wait for it. The line is of the container's memory, not the GPU's: TGI reserves that at start.
    Memory that grows for another reason while batches grow teaches too much. Without a budget on
    the page or in the configuration (up to TGI 2.2 `/info` has it) nothing is judged.
    """

    def __init__(self, config: BatchBudgetConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({_TOKENS, _BUDGET})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, _TOKENS, CAUSE)

    def start(self) -> BatchBudgetMemory:
        return BatchBudgetMemory()

    def step(
        self, memory: BatchBudgetMemory, reading: Reading
    ) -> tuple[BatchBudgetMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = BatchBudgetMemory(memory.line)
        if reading.identity.engine not in _ENGINES:
            return memory, ()
        unknown = unjudged(
            self._subject,
            reading,
            (_TOKENS, _BUDGET),
            stale_seconds=self.config.stale_seconds,
            idle=(Absence.NO_DATA, Absence.NO_SAMPLE),
        )
        if unknown is not None or reading.values[_BUDGET] <= 0:
            return memory, unknown or ()
        line = self._learnt(memory.line, reading)
        fits = self._fits(line, reading)
        budget, tokens = reading.values[_BUDGET], reading.values[_TOKENS]
        share = tokens / min(budget, fits or budget)
        pressed = fits is not None or reading.values.get(_WAITING, 1.0) > 0
        hysteresis = memory.hysteresis.seen(
            breach=pressed and share >= self.config.trip,
            calm=not pressed or share <= self.config.clear,
            breaches=self.config.breaches,
            calms=self.config.calms,
        )
        memory = BatchBudgetMemory(line, hysteresis)
        return memory, (self._judged(memory, reading, share, fits),)

    def _learnt(self, line: Line, reading: Reading) -> Line:
        if reading.obstacle((_USED,), stale_seconds=self.config.stale_seconds):
            return line
        return line.seen(
            reading.values[_TOKENS],
            reading.values[_USED],
            reading.monotonic_seconds,
            memory_seconds=self.config.memory_seconds,
        )

    def _fits(self, line: Line, reading: Reading) -> float | None:
        """Return the tokens that fit the memory, None where the budget is the smaller bound."""
        limit, budget = reading.values.get(_LIMIT, 0.0), reading.values[_BUDGET]
        sure = line.points >= self.config.fewest and line.correlation >= self.config.correlation
        if not sure or limit <= 0 or line.spread < budget / 100:
            return None
        fits = line.where(self.config.memory_share * limit)
        return max(fits, 1.0) if fits is not None and fits < budget else None

    def _judged(
        self, memory: BatchBudgetMemory, reading: Reading, share: float, fits: float | None
    ) -> Verdict:
        tokens, budget = reading.values[_TOKENS], reading.values[_BUDGET]
        level = memory.hysteresis.level
        if fits is None:
            waiting = reading.values.get(_WAITING)
            told = "" if waiting is None else f", {waiting:g} waiting"
            reason = f"{tokens:,.0f} tokens in the batch of a budget of {budget:,.0f}{told}"
        else:
            level = Level.WARNING if level is Level.OK else level
            each, limit = memory.line.slope / 1e6, reading.values[_LIMIT] / 1e9
            reason = (
                f"{tokens:,.0f} tokens in the batch, {fits:,.0f} fit the memory "
                f"({each:.2g} MB each, limit {limit:.3g} GB); the budget of {budget:,.0f} does "
                "not: lower max-batch-total-tokens, or raise the limit"
            )
        return reading.verdict(
            self.name,
            _TOKENS,
            level,
            reason=f"{reason}; {memory.hysteresis.words()}",
            statistic=share,
            threshold=self.config.trip,
            effect=memory.line.slope if fits is not None else None,
            evidence=float(memory.hysteresis.breaches),
            samples=memory.line.points,
            cause=CAUSE,
            details={"breached": float(memory.hysteresis.breached)},
        )

    def save(self, memory: BatchBudgetMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> BatchBudgetMemory:
        return unpack(data, BatchBudgetMemory, mark=self._mark)
