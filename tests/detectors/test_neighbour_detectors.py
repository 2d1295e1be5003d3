"""Retry storms, open streams, a slow vector store."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detectors.pulse import Pulses
from detectors.records import Absence, Histogram, Level, Reading, Verdict
from detectors.retry_storm import RetryStormConfig
from detectors.streams import StreamsConfig
from detectors.vector_latency import VectorLatencyConfig
from tests.builders import a_reading
from tests.detectors.recordings import judged

INTERVAL = 15.0


def client(number: int, **values: float) -> Reading:
    reading = a_reading(values, target="batch", seconds=INTERVAL * number)
    return replace(reading, neighbour=True)


def calls(shares: list[float], *, refused: bool = True) -> list[Reading]:
    """Return reads of a client with 150 calls between reads, of which a share are retries."""
    again, readings = 0.0, []
    for number, share in enumerate(shares):
        again += 150 * share
        values = {"client_requests_total": 150.0 * number, "client_retries_total": again}
        if refused:
            values["client_rate_limited_total"] = again
        readings.append(client(number, **values))
    return readings


def storm(readings: list[Reading]) -> list[Verdict]:
    return judged(RetryStormConfig().build(), readings)


def test_a_well_built_client_with_two_percent_retries_is_quiet() -> None:
    rng = np.random.default_rng(5)

    found = storm(calls(list(rng.binomial(150, 0.02, 2_000) / 150)))

    assert {it.level for it in found} == {Level.OK}


def test_a_third_of_the_calls_sent_again_is_a_storm_with_its_amplification_and_advice() -> None:
    found = storm(calls([0.0] * 10 + [1 / 3] * 15))

    assert found[-1].level is Level.CRITICAL
    assert found[-1].effect == pytest.approx(1.5, rel=0.01)
    assert "wait a random time before a retry" in found[-1].reason
    assert "bound the requests in flight" in found[-1].reason


def test_retries_alone_are_enough_where_429_is_not_counted() -> None:
    assert storm(calls([0.2] * 8, refused=False))[-1].level is Level.CRITICAL


def test_a_handful_of_calls_is_not_judged() -> None:
    readings = [
        client(n, client_requests_total=float(n), client_retries_total=float(n)) for n in range(12)
    ]

    found = storm(readings)

    assert {it.level for it in found} == {Level.OK}
    assert "20 are judged" in found[-1].reason


def test_refusals_in_waves_are_told_with_their_period() -> None:
    found = storm(calls([0.6 if n % 4 == 0 else 0.02 for n in range(60)]))

    assert found[-1].level is Level.CRITICAL
    assert "in waves every 60 s" in found[-1].reason
    assert found[-1].details["synchrony"] > 0.9


def test_noise_has_no_rhythm() -> None:
    rng, told = np.random.default_rng(8), 0
    for _ in range(400):
        pulses, count = Pulses(), 0.0
        for number, rise in enumerate(rng.poisson(20, 31)):
            count += float(rise)
            pulses = pulses.seen(count, INTERVAL * number)
        told += pulses.rhythm() is not None

    assert told <= 20


def test_a_queue_near_its_bound_is_a_storm_of_a_broker_that_tells_nothing_else() -> None:
    readings = [client(n, client_queue_size=850.0, client_queue_bound=1000.0) for n in range(4)]

    found = storm(readings)

    assert found[-1].level is Level.CRITICAL
    assert "queue of 850 is 0.85 of its bound" in found[-1].reason
    assert "stop taking work in" in found[-1].reason


def test_a_queue_without_a_bound_is_not_judged() -> None:
    reading = replace(
        client(0, client_queue_size=9e4), absent={"client_queue_bound": Absence.NO_FAMILY}
    )
    detector = RetryStormConfig().build()

    assert detector.step(detector.start(), reading)[1] == ()


def test_a_storm_that_is_over_clears() -> None:
    assert storm(calls([0.3] * 20 + [0.0] * 20))[-1].level is Level.OK


def proxy(number: int, streams: float, rss: float | None = None) -> Reading:
    values = {"client_streams_active": streams}
    if rss is not None:
        values |= {"memory_rss_bytes": rss, "memory_limit_bytes": 2e9}
    return client(number, **values)


def streams(readings: list[Reading]) -> list[Verdict]:
    return judged(StreamsConfig().build(), readings)


@pytest.mark.parametrize(
    ("open_streams", "level"), [(19, Level.OK), (20, Level.WARNING), (30, Level.CRITICAL)]
)
def test_until_something_is_learnt_twenty_warn_and_thirty_raise(
    open_streams: float, level: Level
) -> None:
    assert streams([proxy(n, open_streams) for n in range(3)])[-1].level is level


def test_small_streams_teach_a_high_bound_and_large_ones_a_low_one() -> None:
    rng = np.random.default_rng(6)

    def last(each: float) -> Verdict:
        sizes = rng.integers(2, 15, 60)
        return streams(
            [proxy(n, float(it), 2e8 + each * it + float(rng.normal(0, 4e6)))
             for n, it in enumerate(sizes)]
        )[-1]  # fmt: skip

    assert last(1e7).threshold == pytest.approx(140, rel=0.1)
    assert last(1e8).threshold == pytest.approx(14, rel=0.1)


def test_fifty_streams_behind_a_learnt_bound_of_a_hundred_are_quiet() -> None:
    readings = [proxy(n, float(n), 2e8 + 1.4e7 * n) for n in range(51)]

    found = streams(readings)

    assert found[-1].level is Level.OK
    assert found[-1].effect == pytest.approx(1.4e7)


def test_memory_that_has_nothing_to_do_with_streams_teaches_nothing() -> None:
    rng = np.random.default_rng(6)
    readings = [
        proxy(n, float(rng.integers(1, 15)), float(rng.uniform(2e8, 1e9))) for n in range(100)
    ]

    assert streams(readings)[-1].threshold == 30


def store(means: list[float], *, deleted: float = 0.1, slow: float = 0.0) -> list[Reading]:
    """Return reads of a store with 30 searches between reads."""
    total, readings = 0.0, []
    for number, mean in enumerate(means):
        total += 30 * mean
        count = 30.0 * number
        quick = count * (1 - slow)
        found = Histogram((0.5, 1.0), (quick, quick), count, total)
        reading = replace(
            client(number, vector_deleted_ratio=deleted),
            target="milvus",
            histograms={"vector_search_seconds": found},
        )
        readings.append(reading)
    return readings


def vectors(readings: list[Reading]) -> list[Verdict]:
    return judged(VectorLatencyConfig().build(), readings)


def test_a_store_that_climbs_from_40_ms_to_12_s_is_named_and_the_engine_is_not_blamed() -> None:
    climb = [0.04] * 100 + list(np.geomspace(0.04, 12, 100))

    found = vectors(store(climb, deleted=0.4))

    first = next(n for n, it in enumerate(found) if it.level is Level.CRITICAL)
    assert climb[first] < 1.0
    assert "vector store milvus" in found[first].reason
    assert "the engine is not to blame" in found[first].reason
    assert "compact the collection" in found[first].reason


def test_a_store_as_ever_is_quiet_for_hours() -> None:
    rng = np.random.default_rng(9)
    means = 0.04 * np.exp(rng.normal(0, 0.3, 2_000))

    assert {it.level for it in vectors(store(list(means)))} == {Level.OK}


def test_a_slow_twentieth_is_seen_behind_a_good_mean() -> None:
    assert vectors(store([0.2] * 20, slow=0.06))[-1].level is Level.CRITICAL


def test_deleted_vectors_warn_by_themselves() -> None:
    verdict = vectors(store([0.04] * 20, deleted=0.4))[-1]

    assert verdict.level is Level.WARNING
    assert "0.4 of the vectors deleted; compact the collection" in verdict.reason


def test_a_store_without_searches_is_ok() -> None:
    found = vectors(store([0.04] * 4)[:1] * 3)

    assert {it.level for it in found} == {Level.OK}
