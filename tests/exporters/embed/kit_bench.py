"""A kit on a bench: a clock that sleeping moves, and chance that always draws its most."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from exporters.embed.client_kit import ClientKit, Metrics, Pace, Retries

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@dataclass
class Answer:
    """What a library answers: a status, and headers where there are any."""

    status_code: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Bench:
    """A kit with a clock that sleeping moves, and without chance: jitter is always its most."""

    retries: Retries = field(default_factory=Retries)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at = 100.0
        self.slept: list[float] = []
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.pace = Pace(
            self.retries,
            self.metrics,
            monotonic=lambda: self.at,
            wall=NOW.timestamp,
            uniform=lambda low, high: high,
        )
        self.kit = ClientKit(
            metrics=self.metrics, pace=self.pace, sleep=self._sleep, **self.settings
        )

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds

    def sample(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def saying(*outcomes: object) -> Any:
    """Return a function that returns or raises one outcome after another, the last for ever."""
    left = list(outcomes)

    def ask(*_: object) -> object:
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return ask
