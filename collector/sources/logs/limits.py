"""What a server states of itself in its log, put together: limits, and whether it is starting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from collector.sources.logs.scan import Fact

_MOST_ENGINES: Final = 1024
_MOST_BLOCK_TOKENS: Final = 4096
_BLOCK_TOLERANCE: Final = 0.02  # the concurrency is written with two digits behind the point


class StatedLimits:
    """The limits of the last start in a log; data parallel engines state theirs one by one."""

    def __init__(self) -> None:
        self.starting = False
        self._engines: dict[str, dict[str, float]] = {}
        self._whole: dict[str, float] = {}

    def take(self, facts: Iterable[Fact], launcher: Mapping[str, float]) -> None:
        """Take facts in the order of their lines; a start makes those before it void."""
        for fact in facts:
            if fact.starting is not None:
                self.starting = fact.starting
                if fact.starting:
                    self._engines.clear()
                    self._whole.clear()
                continue
            if len(self._engines) < _MOST_ENGINES or fact.engine in self._engines:
                self._engines.setdefault(fact.engine, {}).update(fact.numbers)
        for name, signal in (
            ("max_batch_total_tokens", "batch_token_budget"),
            ("max_total_tokens", "context_tokens"),
        ):
            if name in launcher:
                self._whole[signal] = launcher[name]

    def values(self) -> dict[str, float]:
        """Return the canonical signals that follow; those that were not stated are left out."""
        engines = self._engines.values()
        capacities = [it for it in map(_capacity, engines) if it is not None]
        slots = [numbers["slots"] for numbers in engines if "slots" in numbers]
        contexts = [numbers["context"] for numbers in engines if "context" in numbers]
        budgets = [numbers["batch_tokens"] for numbers in engines if "batch_tokens" in numbers]
        found: dict[str, float] = {}
        if capacities:
            found["kv_cache_capacity_tokens"] = math.fsum(capacities)
        if slots:  # the arguments are stated once, and hold for each engine
            found["request_slots"] = max(slots) * max(len(capacities), 1)
        if contexts:
            found["context_tokens"] = min(contexts)
        if budgets:
            found["batch_token_budget"] = max(budgets)
        return {name: value for name, value in {**self._whole, **found}.items() if value > 0}


def _capacity(numbers: Mapping[str, float]) -> float | None:
    """Return the tokens that an engine's KV cache holds.

    vLLM before V1 states blocks, and how many of the longest requests fit: their quotient is the
    block's size within rounding, and that is a power of two.
    """
    if "kv_tokens" in numbers:
        return numbers["kv_tokens"]
    blocks, concurrency = numbers.get("blocks"), numbers.get("concurrency")
    context = numbers.get("context")
    if not blocks or not concurrency or not context:
        return None
    size = concurrency * context / blocks
    if not 1 / 2 < size <= _MOST_BLOCK_TOKENS:
        return None
    power = 2.0 ** round(math.log2(size))
    return blocks * power if abs(size / power - 1) <= _BLOCK_TOLERANCE else None
