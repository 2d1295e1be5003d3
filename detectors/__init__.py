"""Detectors: pure functions from readings and counts to verdicts. Start at `records.py`.

A new detector is one file with its settings (a `kind` of its own and `build`), and one line in
the unions below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from detectors.corrupted import CorruptedConfig
from detectors.down import DownConfig
from detectors.kl import KlConfig
from detectors.ks import KsConfig
from detectors.limit import LimitConfig, WhenConfig
from detectors.protocols import ReadingDetector, TickDetector
from detectors.queue_growth import QueueGrowthConfig
from detectors.stalled import StalledConfig

ReadingConfig: TypeAlias = (
    LimitConfig | QueueGrowthConfig | StalledConfig | CorruptedConfig | DownConfig
)
TickConfig: TypeAlias = KsConfig | KlConfig
DetectorConfig: TypeAlias = Annotated[ReadingConfig | TickConfig, Field(discriminator="kind")]

_WAITING = WhenConfig(signal="requests_waiting", above=0)


def default_detectors() -> tuple[DetectorConfig, ...]:
    """Return the detectors of a tier that names none."""
    return (
        LimitConfig(
            name="kv_cache",
            signal="kv_cache_usage_ratio",
            trip=0.95,
            clear=0.80,
            when=_WAITING,
            cause="kv_cache_saturated",
        ),
        LimitConfig(
            name="slots",
            signal="requests_running",
            divisor="request_slots",
            trip=0.95,
            clear=0.80,
            when=_WAITING,
            cause="slots_saturated",
            optional=True,
        ),
        QueueGrowthConfig(),
        StalledConfig(),
        CorruptedConfig(),
        DownConfig(),
        KsConfig(side="input"),
        KsConfig(side="output"),
        KlConfig(),
    )


def reading_detectors(configs: Iterable[DetectorConfig]) -> tuple[ReadingDetector[Any], ...]:
    """Build the detectors that judge each completed scrape of a target."""
    return tuple(config.build() for config in configs if not isinstance(config, TickConfig))


def tick_detectors(configs: Iterable[DetectorConfig]) -> tuple[TickDetector[Any], ...]:
    """Build the detectors that judge each closed tick of a tier."""
    return tuple(config.build() for config in configs if isinstance(config, TickConfig))


def repeated_names(configs: Iterable[DetectorConfig]) -> tuple[str, ...]:
    """Return the names that several detectors of one tier would have; they must be unique."""
    names = Counter(config.build().name for config in configs)
    return tuple(sorted(name for name, count in names.items() if count > 1))
