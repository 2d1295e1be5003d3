"""Collapsed throughput, slow tokens, the batch budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from detectors.batch_budget import BatchBudgetConfig
from detectors.records import Absence, Identity, Level, Reading, Verdict
from detectors.remarks import Quantile
from detectors.throughput_collapse import ThroughputCollapseConfig
from detectors.token_latency import TokenLatencyConfig
from tests.builders import a_reading
from tests.detectors.recordings import judged

P99 = "inter_token_p99_seconds"


def engine(
    running: Callable[[int], float],
    speed: Callable[[int], float],
    *,
    scrapes: int,
    counter: str = "generation_tokens_total",
) -> list[Reading]:
    """Return scrapes of an engine that makes `speed` tokens a second for each running request."""
    made, readings = 0.0, []
    for number in range(scrapes):
        made += 5 * speed(number) * running(number)
        values = {"requests_running": running(number), counter: made}
        readings.append(a_reading(values, seconds=5.0 * number))
    return readings


def throughput(readings: list[Reading]) -> list[Verdict]:
    return judged(ThroughputCollapseConfig().build(), readings)


def test_first_it_does_not_know_what_is_usual_and_no_alert_follows() -> None:
    found = throughput(engine(lambda n: 8, lambda n: 50, scrapes=400))

    assert found[5].level is Level.UNKNOWN
    assert found[5].cause == ""
    assert "0 of 3 spans" in found[5].reason
    assert found[-1].level is Level.OK


def test_a_fall_to_a_fifth_is_critical_within_two_minutes() -> None:
    readings = engine(lambda n: 8, lambda n: 50 if n < 400 else 10, scrapes=440)

    found = [it.level for it in throughput(readings)]

    assert Level.CRITICAL not in found[:400]
    assert found.index(Level.CRITICAL) <= 424


def test_load_that_comes_and_goes_is_no_collapse() -> None:
    rng = np.random.default_rng(7)
    sizes = np.clip(8 + np.cumsum(rng.normal(0, 1.5, 2_500)), 1, 64)

    readings = engine(lambda n: float(sizes[n]), lambda n: 60 / sizes[n] ** 0.5, scrapes=2_500)

    assert Level.CRITICAL not in [it.level for it in throughput(readings)]


def test_an_engine_without_work_is_ok() -> None:
    found = throughput(engine(lambda n: 0, lambda n: 0, scrapes=50))

    assert {it.level for it in found} == {Level.OK}


def test_a_collapse_does_not_become_usual_while_it_lasts() -> None:
    readings = engine(lambda n: 8, lambda n: 50 if n < 400 else 10, scrapes=2_000)

    assert throughput(readings)[-1].level is Level.CRITICAL


def test_steps_stand_in_where_tokens_are_counted_at_the_end() -> None:
    readings = engine(
        lambda n: 8, lambda n: 5 if n < 400 else 1, scrapes=440, counter="engine_steps_total"
    )

    verdict = throughput(readings)[-1]

    assert verdict.level is Level.CRITICAL
    assert "steps/s" in verdict.reason


def tokens(seconds: float, value: float, lower: float, upper: float) -> Reading:
    quantile = Quantile(value, lower, upper, samples=900, window_seconds=60)
    return replace(a_reading({P99: value}, seconds=seconds), quantiles={P99: quantile})


def latency(buckets: list[tuple[float, float, float]], **settings: float) -> list[Verdict]:
    detector = TokenLatencyConfig.model_validate(settings).build()
    return judged(detector, [tokens(5.0 * n, *it) for n, it in enumerate(buckets)])


def test_an_hour_of_its_own_past_decides_without_an_objective() -> None:
    found = latency([(0.06, 0.05, 0.075)] * 400 + [(0.4, 0.3, 0.5)] * 6)

    assert found[10].level is Level.UNKNOWN
    assert found[399].level is Level.OK
    assert found[-1].level is Level.CRITICAL
    assert "usual 0.06 s" in found[-1].reason


def test_one_coarse_bucket_is_a_warning_at_most() -> None:
    found = latency([(0.3, 0.1, 0.5)] * 30, objective_seconds=0.2)

    assert {it.level for it in found} == {Level.WARNING}
    assert "too coarse" in found[-1].reason


def test_a_bucket_wholly_above_the_objective_raises_after_five_scrapes() -> None:
    found = [it.level for it in latency([(0.6, 0.5, 0.75)] * 6, objective_seconds=0.2)]

    assert found == [Level.WARNING] * 4 + [Level.CRITICAL] * 2


def test_fast_tokens_that_triple_are_no_alarm() -> None:
    found = latency([(0.01, 0.005, 0.01)] * 400 + [(0.04, 0.03, 0.045)] * 20)

    assert found[-1].level is Level.OK


def test_a_tier_without_traffic_raises_nothing() -> None:
    (verdict,) = judged(TokenLatencyConfig().build(), [a_reading(absent={P99: Absence.TOO_FEW})])

    assert verdict.level is Level.UNKNOWN
    assert verdict.cause == ""


def batch(
    number: int, tokens: float, *, waiting: float = 2, memory: float | None = None, engine: str = ""
) -> Reading:
    values = {
        "batch_tokens": tokens,
        "batch_token_budget": 64_000.0,
        "requests_waiting": waiting,
    }
    if memory is not None:
        values |= {"memory_working_set_bytes": memory, "memory_limit_bytes": 32e9}
    return replace(a_reading(values, seconds=5.0 * number), identity=Identity(engine))


def test_a_full_budget_raises_only_while_others_wait() -> None:
    detector = BatchBudgetConfig().build()

    alone = judged(detector, [batch(n, 63_000, waiting=0) for n in range(5)])
    queued = judged(detector, [batch(n, 63_000) for n in range(5)])

    assert {it.level for it in alone} == {Level.OK}
    assert queued[-1].level is Level.CRITICAL
    assert "63,000 tokens in the batch of a budget of 64,000, 2 waiting" in queued[-1].reason


def test_a_budget_that_does_not_fit_the_memory_is_told_before_it_is_used() -> None:
    rng = np.random.default_rng(2)
    loads = rng.uniform(2_000, 24_000, 200)
    readings = [
        batch(n, float(it), waiting=0, memory=8e9 + 5e5 * it + float(rng.normal(0, 2e8)))
        for n, it in enumerate(loads)
    ]

    verdict = judged(BatchBudgetConfig().build(), readings)[-1]

    assert verdict.level is Level.WARNING
    assert verdict.effect == pytest.approx(5e5, rel=0.05)
    assert "lower max-batch-total-tokens" in verdict.reason


def test_memory_that_does_not_follow_the_batch_teaches_nothing() -> None:
    rng = np.random.default_rng(2)
    readings = [
        batch(n, float(rng.uniform(2e3, 2.4e4)), memory=float(rng.uniform(8e9, 2e10)))
        for n in range(200)
    ]

    assert {it.level for it in judged(BatchBudgetConfig().build(), readings)} == {Level.OK}


def test_other_engines_are_not_spoken_of() -> None:
    detector = BatchBudgetConfig().build()

    assert detector.step(detector.start(), batch(0, 63_000, engine="vllm"))[1] == ()
