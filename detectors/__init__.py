"""Detectors: pure functions from readings and counts to verdicts. Start at `records.py`.

A new detector is one file with its settings (a `kind` of its own and `build`), and one line in
the unions below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from detectors.batch_budget import BatchBudgetConfig
from detectors.container_memory import ContainerMemoryConfig
from detectors.corrupted import CorruptedConfig
from detectors.down import DownConfig
from detectors.duplicate_copies import DuplicateCopiesConfig
from detectors.exhaustion import ExhaustionConfig
from detectors.fragmentation import FragmentationConfig
from detectors.gpu_memory_high import GpuMemoryHighConfig
from detectors.kl import KlConfig
from detectors.ks import KsConfig
from detectors.limit import LimitConfig, WhenConfig
from detectors.protocols import ReadingDetector, TickDetector
from detectors.queue_growth import QueueGrowthConfig
from detectors.restarts import RestartsConfig
from detectors.retry_storm import RetryStormConfig
from detectors.sequential_drift import SequentialDriftConfig
from detectors.stalled import StalledConfig
from detectors.streams import StreamsConfig
from detectors.throughput_collapse import ThroughputCollapseConfig
from detectors.token_latency import TokenLatencyConfig
from detectors.vector_latency import VectorLatencyConfig

# Silent where no source of a target offers their signals: nobody is told that these are absent.
OfferedConfig: TypeAlias = (
    ExhaustionConfig
    | FragmentationConfig
    | GpuMemoryHighConfig
    | DuplicateCopiesConfig
    | ThroughputCollapseConfig
    | TokenLatencyConfig
    | RetryStormConfig
    | StreamsConfig
    | BatchBudgetConfig
    | VectorLatencyConfig
    | ContainerMemoryConfig
    | RestartsConfig
)
ReadingConfig: TypeAlias = (
    LimitConfig | QueueGrowthConfig | StalledConfig | CorruptedConfig | DownConfig | OfferedConfig
)
TickConfig: TypeAlias = KsConfig | KlConfig | SequentialDriftConfig
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
        *_of_readings(),
        KsConfig(side="input"),
        KsConfig(side="output"),
        KlConfig(),
    )


def _of_readings() -> tuple[DetectorConfig, ...]:
    """Return the default detectors that are silent where a target does not offer their signals."""
    return (
        ExhaustionConfig(
            name="kv_exhaustion", signal="kv_cache_usage_ratio", cause="kv_cache_exhaustion"
        ),
        ExhaustionConfig(
            name="gpu_exhaustion",
            signal="gpu_memory_used_bytes",
            divisor="gpu_memory_total_bytes",
            cause="gpu_memory_exhaustion",
        ),
        ExhaustionConfig(
            name="memory_exhaustion",
            signal="memory_working_set_bytes",
            divisor="memory_limit_bytes",
            instead="memory_rss_bytes",
        ),
        FragmentationConfig(),
        GpuMemoryHighConfig(),
        DuplicateCopiesConfig(),
        ContainerMemoryConfig(),
        RestartsConfig(),
        ThroughputCollapseConfig(),
        TokenLatencyConfig(),
        BatchBudgetConfig(),
        RetryStormConfig(),
        StreamsConfig(),
        VectorLatencyConfig(),
    )


def wanted_signals(configs: Iterable[DetectorConfig]) -> frozenset[str]:
    """Return the signals whose absence is to be told where no source of a target has them."""
    wanting = (it for it in configs if not isinstance(it, TickConfig | OfferedConfig))
    return frozenset().union(*(config.build().signals for config in wanting))


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
