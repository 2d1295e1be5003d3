"""What every detector of the default set must hold, of either kind."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from detectors import OfferedConfig, default_detectors, reading_detectors, tick_detectors
from detectors.protocols import ReadingDetector, TickDetector
from detectors.records import FloatArray, Histogram, Level, Panel, Reading, Tick, Verdict
from detectors.sequential_drift import SequentialDriftConfig
from detectors.signals import grid_of
from tests.builders import a_reading
from tests.detectors.histories import CYCLE, pressed
from tests.detectors.panels import a_baseline, a_panel

READING = {detector.name: detector for detector in reading_detectors(default_detectors())}
# Not of the default set; paging from the small baselines that the panels below have.
OPT_IN = (SequentialDriftConfig(paging_requests=100),)
TICK = {it.name: it for it in tick_detectors((*default_detectors(), *OPT_IN))}
LOOKING_BACK = {config.build().name for config in OPT_IN}  # they keep finer counts of the newest
OFFERED = {it.build().name for it in default_detectors() if isinstance(it, OfferedConfig)}
# These compare with their own past or look ahead, so first they do not know: no trouble to tell.
COLLECTING = {"throughput", "token_latency", "kv_exhaustion", "gpu_exhaustion", "memory_exhaustion"}

each_reading = pytest.mark.parametrize("name", sorted(READING))
each_tick = pytest.mark.parametrize("name", sorted(TICK))
Detector = ReadingDetector[Any] | TickDetector[Any]


def scrapes(count: int, seed: int = 1) -> Iterator[Reading]:
    """Yield scrapes of an engine that idles, works, hangs, fails and restarts at random."""
    rng = np.random.default_rng(seed)
    made, taken, corrupted, queued = 0.0, 0.0, 0.0, 0.0
    for number in range(count):
        seconds = 5.0 * number
        if rng.random() < 0.1:
            yield a_reading(problem="timed out", seconds=seconds)
            continue
        waiting = float(rng.integers(0, 30))
        moves = rng.random() < 0.7 and number % 100 < 60
        made += moves * float(rng.integers(1, 900))
        taken += moves * float(rng.integers(1, 90))
        corrupted += float(rng.random() < 0.02)
        queued += moves * waiting
        reading = a_reading(
            {
                "up": 1.0,
                "requests_running": float(rng.integers(0, 9)),
                "requests_waiting": waiting,
                "request_slots": 8.0,
                "kv_cache_usage_ratio": float(rng.choice([0.5, 0.9, 0.96, 1.0])),
                "generation_tokens_total": made,
                "prompt_tokens_total": taken,
                "corrupted_requests_total": corrupted,
            },
            seconds=seconds,
        )
        yield replace(
            reading,
            restarted=bool(rng.random() < 0.02),
            histograms={"queue_seconds": Histogram((), (), 2 * queued, queued)},
        )


def history(name: str, count: int) -> Iterator[Reading]:
    """Yield readings in which a reading detector finds something, of both kinds of trouble."""
    return pressed(count) if name in OFFERED else scrapes(count)


def signals_of(detector: Detector) -> list[str]:
    return sorted(detector.signals)


def panels(detector: TickDetector[Any], count: int, seed: int = 1) -> Iterator[Panel]:
    """Yield panels of the detector's signals, drifting and back, one stream without a baseline."""
    rng = np.random.default_rng(seed)
    names = signals_of(detector)[:3]
    names += names[:1]
    references = [
        a_baseline(drawn(rng, name, 2000, 1.0), signal=name).signals[name] for name in names
    ]
    for number in range(count):
        scale = 3.0 if 10 < number % 40 < 25 else 1.0
        sizes = rng.choice([0, 30, 300], size=len(names))
        yield a_panel(
            [
                grid_of(name).count(drawn(rng, name, int(size), scale))
                for name, size in zip(names, sizes, strict=True)
            ],
            [*references[:-1], None],
            signals=names,
            number=number,
        )


def drawn(rng: np.random.Generator, name: str, size: int, scale: float) -> FloatArray:
    """Draw edges of the signal's grid, low ones the likelier the larger `scale`."""
    edges = grid_of(name).array
    raw = np.exp(-scale * np.arange(len(edges)) / max(len(edges), 8) * 4)
    return rng.choice(edges, size=size, p=raw / raw.sum())


def run(detector: Any, inputs: Iterator[Any]) -> list[tuple[Verdict, ...]]:
    memory = detector.start()
    found = []
    for given in inputs:
        memory, verdicts = detector.step(memory, given)
        found.append(verdicts)
    return found


def levels(detector: Any, given: Any) -> set[Level]:
    _, verdicts = detector.step(detector.start(), given)
    return {verdict.level for verdict in verdicts}


@each_reading
def test_an_empty_reading_is_unknown_with_a_reason(name: str) -> None:
    _, (verdict,) = READING[name].step(READING[name].start(), a_reading())

    assert verdict.level is Level.UNKNOWN
    assert "family absent" in verdict.reason


@each_reading
def test_a_stale_reading_is_unknown(name: str) -> None:
    usable = next(reading for reading in history(name, 9) if reading.up)
    first = {Level.UNKNOWN} if name in COLLECTING else set()

    assert levels(READING[name], replace(usable, age_seconds=3600.0)) == {Level.UNKNOWN}
    assert levels(READING[name], usable) <= {Level.OK, Level.WARNING} | first


@each_reading
def test_a_failed_scrape_is_never_ok(name: str) -> None:
    found = levels(READING[name], a_reading(problem="timed out"))

    assert found <= {Level.UNKNOWN, Level.WARNING}
    assert found == {Level.UNKNOWN} or name == "down"


@each_tick
def test_a_panel_without_baselines_or_requests_is_unknown(name: str) -> None:
    signal = signals_of(TICK[name])[0]
    nothing = np.zeros(grid_of(signal).bins, dtype=np.int64)
    known = a_baseline(np.linspace(0, 1, 500), signal=signal).signals[signal]

    assert levels(TICK[name], a_panel([nothing + 99], [None], signals=[signal])) == {Level.UNKNOWN}
    assert levels(TICK[name], a_panel([nothing], [known], signals=[signal])) == {Level.UNKNOWN}


@each_tick
@pytest.mark.parametrize("age", [3600.0, np.inf, np.nan])
def test_a_stale_panel_is_unknown(name: str, age: float) -> None:
    signal = signals_of(TICK[name])[0]
    known = a_baseline(np.linspace(0, 1, 500), signal=signal).signals[signal]
    panel = a_panel([known.counts], [known], signals=[signal], age_seconds=age)

    assert levels(TICK[name], panel) == {Level.UNKNOWN}


@each_reading
def test_readings_are_not_changed_and_verdicts_are_the_same_again(name: str) -> None:
    given = list(history(name, 200))
    before = copy.deepcopy(given)

    first, second = run(READING[name], iter(given)), run(READING[name], iter(given))

    assert first == second
    assert given == before


@each_tick
def test_panels_and_memories_are_not_changed_and_verdicts_are_the_same_again(name: str) -> None:
    detector = TICK[name]
    given = list(panels(detector, 60))
    counts = [panel.counts.copy() for panel in given]
    memory = detector.start()
    for panel in given[:20]:
        memory, _ = detector.step(memory, panel)
    saved = detector.save(memory)

    once, twice = detector.step(memory, given[20]), detector.step(memory, given[20])

    assert detector.save(memory) == saved
    assert once[1] == twice[1]
    assert run(detector, iter(given)) == run(detector, iter(given))
    assert all(np.array_equal(p.counts, c) for p, c in zip(given, counts, strict=True))


@each_tick
def test_counts_of_two_halves_judge_as_the_whole(name: str) -> None:
    detector = TICK[name]
    rng = np.random.default_rng(5)
    whole, joined = [], []
    for panel in panels(detector, 30):
        part = rng.binomial(panel.counts, 0.5)
        halves = [tick_of(panel, part), tick_of(panel, panel.counts - part)]
        added = halves[1].plus(halves[0])
        counts = np.stack([added.counts[str(row)] for row in range(len(panel.streams))])
        whole.append(panel)
        joined.append(replace(panel, counts=counts))

    assert run(detector, iter(whole)) == run(detector, iter(joined))


def tick_of(panel: Panel, counts: Any) -> Tick:
    """Return a worker's tick, a row of the panel under each name."""
    return Tick(
        tier=panel.tier,
        scope=panel.streams[0].scope,
        variant="v1",
        number=panel.number,
        start=panel.start,
        duration_seconds=panel.duration_seconds,
        age_seconds=0.0,
        requests=int(counts.sum()),
        counts={str(row): found for row, found in enumerate(counts)},
    )


@each_tick
def test_a_panel_of_other_signals_gives_no_verdicts(name: str) -> None:
    nothing = np.zeros(grid_of("request_seconds").bins, dtype=np.int64)
    panel = a_panel([nothing], [None], signals=["request_seconds"])

    assert levels(TICK[name], panel) == set()


@pytest.fixture(scope="module")
def long_run() -> dict[bool, list[Reading]]:
    return {True: list(pressed(5_000)), False: list(scrapes(10_000))}


@each_reading
def test_memory_of_a_reading_detector_stays_small(
    name: str, long_run: dict[bool, list[Reading]]
) -> None:
    detector = READING[name]
    memory = detector.start()
    sizes = []
    for number, reading in enumerate(long_run[name in OFFERED]):
        memory, _ = detector.step(memory, reading)
        if number % 50 == 0:
            sizes.append(len(detector.save(memory)))

    assert max(sizes) < 1_000
    half = len(sizes) // 2
    assert max(sizes[half:]) <= max(sizes[:half]) + 32


@each_tick
def test_memory_of_a_tick_detector_stays_as_it_is(name: str) -> None:
    detector = TICK[name]
    memory = detector.start()
    sizes = set()
    for panel in panels(detector, 400):
        memory, _ = detector.step(memory, panel)
        sizes.add(len(detector.save(memory)) // 1_000)

    if name in LOOKING_BACK:
        assert max(sizes) <= 12, "at most 40 blocks of a few dozen counts a stream"
    else:
        assert len(sizes) <= 2, "only the names of baselines are added after the first panel"


@each_reading
@pytest.mark.parametrize("cut", [0, 1, 40, 60])
def test_a_reading_detector_goes_on_after_save_and_load_as_after_a_moment_not_watched(
    name: str, cut: int
) -> None:
    given = list(history(name, 120))
    unusable = replace(a_reading({"up": 1.0}), age_seconds=3600.0)  # changes no memory but time

    straight = run(READING[name], iter([*given[:cut], unusable, *given[cut:]]))

    assert saved_in_between(READING[name], given, cut) == straight[cut + 1 :]


@each_tick
@pytest.mark.parametrize("cut", [0, 1, 20, 30])
def test_a_tick_detector_goes_on_after_save_and_load_as_if_nothing_was(name: str, cut: int) -> None:
    given = list(panels(TICK[name], 60))

    assert saved_in_between(TICK[name], given, cut) == run(TICK[name], iter(given))[cut:]


def saved_in_between(detector: Any, given: list[Any], cut: int) -> list[tuple[Verdict, ...]]:
    """Return the verdicts after `cut` inputs, at which the memory was saved and loaded."""
    memory = detector.start()
    for one in given[:cut]:
        memory, _ = detector.step(memory, one)
    memory = detector.load(detector.save(memory))
    after = []
    for one in given[cut:]:
        memory, verdicts = detector.step(memory, one)
        after.append(verdicts)
    return after


@pytest.mark.parametrize("name", sorted({**READING, **TICK}))
def test_bytes_that_are_no_memory_are_refused(name: str) -> None:
    detector: Any = {**READING, **TICK}[name]
    good = detector.save(detector.start())

    for data in (b"", b"junk", good[:-1], good.replace(b"Config", b"Other!")):
        with pytest.raises(ValueError, match="saved memory"):
            detector.load(data)


@pytest.mark.parametrize("name", sorted({**READING, **TICK}))
def test_random_histories_reach_every_level_and_each_verdict_explains_itself(name: str) -> None:
    detector: Any = {**READING, **TICK}[name]
    inputs: Iterator[Any] = panels(detector, 60)
    if name in READING:
        inputs = history(name, 2 * CYCLE)

    verdicts = [verdict for found in run(detector, inputs) for verdict in found]

    assert {verdict.level for verdict in verdicts} >= {Level.UNKNOWN, Level.OK, Level.CRITICAL} - (
        {Level.UNKNOWN} if name == "down" else set()
    )
    for verdict in verdicts:
        assert verdict.reason
        assert verdict.detector == name
        assert verdict.cause or (verdict.level is Level.UNKNOWN and name in COLLECTING)
        assert verdict.at.tzinfo is not None
        if verdict.level is not Level.UNKNOWN:
            assert verdict.statistic is not None
            assert verdict.threshold is not None
            assert verdict.details["breached"] in {0.0, 1.0}
