"""The union of detector settings and the default set."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from detectors import (
    DetectorConfig,
    default_detectors,
    reading_detectors,
    repeated_names,
    tick_detectors,
)
from detectors.limit import LimitConfig
from detectors.saved import mark_of, pack, unpack
from detectors.signals import SIGNALS

DETECTORS: TypeAdapter[tuple[DetectorConfig, ...]] = TypeAdapter(tuple[DetectorConfig, ...])


def test_the_default_set_is_whole_and_its_names_are_unique() -> None:
    configs = default_detectors()

    reading = [detector.name for detector in reading_detectors(configs)]
    tick = [detector.name for detector in tick_detectors(configs)]

    assert reading == [
        *("kv_cache", "slots", "queue_growth", "stalled", "corrupted", "down"),
        *("kv_exhaustion", "gpu_exhaustion", "memory_exhaustion", "fragmentation", "gpu_memory"),
        *("duplicate_copies", "container_memory", "restarts", "throughput", "token_latency"),
        *("batch_budget", "retry_storm", "streams", "vector_latency"),
    ]
    assert tick == ["input_drift", "output_drift", "kl"]
    assert repeated_names(configs) == ()


def test_settings_are_chosen_by_kind_and_survive_json() -> None:
    configs = default_detectors()

    assert DETECTORS.validate_json(DETECTORS.dump_json(configs)) == configs


def test_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(ValidationError, match=r"'queue_growth', 'stalled'"):
        DETECTORS.validate_python([{"kind": "magic"}])


def test_every_setting_says_what_it_is_or_is_named_plainly() -> None:
    plain = {"kind", "side"}
    for config in default_detectors():
        for name, field in type(config).model_fields.items():
            assert field.description or name in plain, f"{type(config).__name__}.{name}"


def test_detectors_read_canonical_signals_only() -> None:
    configs = default_detectors()
    read = [detector.signals for detector in reading_detectors(configs)]
    read += [detector.signals for detector in tick_detectors(configs)]

    assert frozenset().union(*read) <= set(SIGNALS)


def test_two_detectors_of_one_name_are_told() -> None:
    twice = LimitConfig(signal="requests_waiting", trip=9, clear=1)

    assert repeated_names((twice, twice)) == ("requests_waiting_limit",)


@pytest.mark.parametrize("data", [b"", b"x", pack(3, mark="another/1/00")])
def test_saved_bytes_of_others_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="saved memory"):
        unpack(data, int, mark="mine/1/00")


def test_a_memory_of_other_settings_is_refused() -> None:
    one, other = (LimitConfig(signal="requests_waiting", trip=t, clear=1) for t in (8, 9))

    assert mark_of(one, version=1) != mark_of(other, version=1)
    with pytest.raises(ValueError, match="start with a new memory"):
        other.build().load(one.build().save(one.build().start()))


def test_a_saved_memory_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="start with a new memory"):
        unpack(pack("text", mark="m"), int, mark="m")
