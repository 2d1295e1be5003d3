"""Drift by Kolmogorov-Smirnov on the grid: right statistic, few false alarms, stated delays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats
from scipy.special import kolmogorov

from detectors.baseline import SignalBaseline, Stage
from detectors.ks import Ks, KsConfig, ks_evidence
from detectors.records import FloatArray, Level, Panel, Verdict
from detectors.signals import grid_of
from tests.detectors.panels import SIGNAL, a_baseline, a_panel, panels_of

GRID = grid_of(SIGNAL)
SURPRISAL = "output_surprisal_mean_nats"


def reference(values: FloatArray, **more: Any) -> SignalBaseline:
    return a_baseline(values, **more).signals[more.get("signal", SIGNAL)]


def run(
    detector: Ks,
    draws: Sequence[Sequence[FloatArray]],
    references: Sequence[SignalBaseline | None],
    *,
    signal: str = SIGNAL,
) -> list[tuple[Verdict, ...]]:
    memory = detector.start()
    found = []
    for panel in panels_of(draws, references, signal=signal):
        memory, verdicts = detector.step(memory, panel)
        found.append(verdicts)
    return found


def steps(detector: Ks, panels: Sequence[Panel]) -> Iterator[tuple[Verdict, ...]]:
    memory = detector.start()
    for panel in panels:
        memory, verdicts = detector.step(memory, panel)
        yield verdicts


def snapped(values: FloatArray) -> FloatArray:
    """Move each value up to the edge under which it is counted; beyond the last, to infinity."""
    edges = np.append(GRID.array, np.inf)
    return edges[np.searchsorted(GRID.array, values, side="left")]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(200, 600), st.floats(0.3, 4))
def test_the_statistic_is_that_of_scipy_on_values_snapped_to_edges(
    seed: int, live: int, shape: float
) -> None:
    rng = np.random.default_rng(seed)
    was, now = rng.beta(2, 5, 900), rng.beta(shape, 5, live)

    ((verdict,),) = run(KsConfig().build(), [[now]], [reference(was)])

    expected = stats.ks_2samp(snapped(now), snapped(was), method="asymp").statistic
    assert verdict.statistic == pytest.approx(expected, abs=1e-12)


def test_evidence_is_that_of_the_kolmogorov_distribution_and_does_not_underflow() -> None:
    size = np.asarray([400.0])
    for distance in (0.001, 0.03, 0.0499, 0.0501, 0.07, 0.1, 0.15):
        exact = -np.log10(kolmogorov(np.sqrt(size) * distance))
        assert ks_evidence(np.asarray([distance]), size) == pytest.approx(exact, abs=1e-6)

    assert ks_evidence(np.asarray([1.0]), np.asarray([1e6]))[0] == pytest.approx(868_588.7, abs=1)


def test_twenty_streams_without_a_change_raise_nothing_in_ten_thousand_verdicts() -> None:
    rng = np.random.default_rng(7)
    references = [reference(rng.beta(2, 5, 20_000)) for _ in range(20)]

    found = run(
        KsConfig().build(),
        [[rng.beta(2, 5, 50) for _ in references] for _ in range(500)],
        references,
    )

    levels = {verdict.level for verdicts in found[4:] for verdict in verdicts}
    assert levels == {Level.OK}
    assert max(v.statistic or 0 for verdicts in found for v in verdicts) < 0.14


def test_a_shift_of_a_quarter_of_the_mass_is_critical_within_the_stated_requests() -> None:
    rng = np.random.default_rng(8)
    references = [reference(rng.beta(2, 5, 20_000)) for _ in range(20)]
    before = [[rng.beta(2, 5, 50) for _ in references] for _ in range(30)]
    after = [[rng.beta(3, 5, 50) for _ in references] for _ in range(20)]  # KS distance 0.24

    found = run(KsConfig().build(), [*before, *after], references)

    delays = [
        next(n for n, vs in enumerate(found[30:], start=1) if vs[row].level is Level.CRITICAL)
        for row in range(len(references))
    ]
    assert 50 * max(delays) <= 750
    assert 50 * float(np.median(delays)) <= 600


def test_a_shift_below_the_floor_is_let_pass_however_certain() -> None:
    rng = np.random.default_rng(9)
    large = KsConfig(window_requests=20_000).build()
    mixed = np.where(rng.random(20_000) < 0.05, 0.99, rng.beta(2, 5, 20_000))

    ((verdict,),) = run(large, [[mixed]], [reference(rng.beta(2, 5, 50_000))])

    assert verdict.evidence is not None
    assert verdict.evidence > 8
    assert verdict.level is Level.OK


def test_the_reason_says_what_share_moved_where() -> None:
    rng = np.random.default_rng(10)
    was = rng.uniform(0, 0.2, 20_000)
    now = np.where(np.arange(1000) < 380, 0.6, rng.uniform(0, 0.2, 1000))

    (verdict,), (again,) = run(KsConfig().build(), [[now], [now]], [reference(was)])

    assert again.reason == (
        "P(prompt_json_ratio > 0.2): baseline 0 %, live 38 %, 2,000 requests; "
        "KS distance 0.38, raised from 0.1"
    )
    assert verdict.details["live_above_ratio"] == pytest.approx(0.38)
    assert verdict.details["wasserstein"] == pytest.approx(0.38 * 0.5, abs=0.01)
    assert verdict.effect is not None
    assert verdict.effect > 1
    assert verdict.cause == "input_drift"


def test_a_candidate_informs_and_a_promotion_makes_the_same_drift_critical() -> None:
    rng = np.random.default_rng(11)
    values = rng.beta(2, 5, 20_000)
    candidate, active = reference(values, stage=Stage.CANDIDATE), reference(values)
    detector = KsConfig().build()
    memory = detector.start()
    levels = []

    for number, used in enumerate([candidate] * 4 + [active]):
        panel = a_panel([GRID.count(rng.beta(5, 5, 500))], [used], number=number)
        memory, (verdict,) = detector.step(memory, panel)
        levels.append(verdict.level)

    assert levels == [Level.OK, *[Level.WARNING] * 3, Level.CRITICAL]


def test_one_tick_of_drift_raises_nothing_and_two_do() -> None:
    rng = np.random.default_rng(12)

    found = run(
        KsConfig().build(),
        [[rng.beta(6, 3, 300)] for _ in range(3)],
        [reference(rng.beta(2, 5, 20_000))],
    )

    assert [vs[0].level for vs in found] == [Level.OK, Level.CRITICAL, Level.CRITICAL]
    assert found[0][0].details["breached"] == 1.0
    assert found[0][0].reason.endswith(", 1 of 2 ticks in a row")
    assert "ticks in a row" not in found[1][0].reason


def test_where_one_tick_is_asked_for_one_tick_raises() -> None:
    rng = np.random.default_rng(12)

    ((verdict,),) = run(
        KsConfig(persistence=1).build(),
        [[rng.beta(6, 3, 300)]],
        [reference(rng.beta(2, 5, 20_000), stage=Stage.CANDIDATE)],
    )

    assert verdict.level is Level.WARNING


def test_a_raised_drift_clears_when_traffic_is_as_before() -> None:
    rng = np.random.default_rng(13)
    drifted = [[rng.beta(6, 3, 300)] for _ in range(4)]
    normal = [[rng.beta(2, 5, 300)] for _ in range(8)]

    found = run(KsConfig().build(), [*drifted, *normal], [reference(rng.beta(2, 5, 20_000))])

    assert found[4][0].level is Level.CRITICAL, "most of the window is still drifted"
    assert found[-1][0].level is Level.OK


def test_ticks_without_requests_neither_raise_nor_clear() -> None:
    rng = np.random.default_rng(14)
    nothing = np.asarray([])

    found = run(
        KsConfig().build(),
        [[rng.beta(6, 3, 300)], [nothing], [nothing], [rng.beta(6, 3, 300)], [nothing]],
        [reference(rng.beta(2, 5, 20_000))],
    )

    assert [vs[0].level for vs in found] == [Level.OK] * 3 + [Level.CRITICAL] * 2
    assert found[2][0].reason.endswith(", 1 of 2 ticks in a row")


def test_without_a_baseline_the_verdict_says_how_far_collection_is() -> None:
    ((verdict,),) = run(KsConfig().build(), [[np.full(500, 0.1)]], [None])

    assert verdict.level is Level.UNKNOWN
    assert verdict.reason == "collecting, 1,234 of 20,000 requests"
    assert verdict.cause == "baseline_missing"


def test_too_few_requests_are_unknown() -> None:
    rng = np.random.default_rng(15)

    ((verdict,),) = run(KsConfig().build(), [[np.full(199, 0.9)]], [reference(rng.random(1000))])

    assert verdict.level is Level.UNKNOWN
    assert verdict.reason == "199 of 200 requests that a verdict needs"


def test_a_baseline_of_another_grid_is_not_compared() -> None:
    rng = np.random.default_rng(16)
    old = replace(reference(rng.random(1000)), grid="ratio-v0")

    ((verdict,),) = run(KsConfig().build(), [[rng.random(500)]], [old])

    assert verdict.level is Level.UNKNOWN
    assert "was made for grid ratio-v0, counts are on ratio-v1" in verdict.reason


def test_a_design_effect_takes_evidence_away() -> None:
    rng = np.random.default_rng(17)
    plain = replace(reference(rng.beta(2, 5, 20_000)), design_effect=1.0)
    bursty = replace(plain, design_effect=10.0)
    now = rng.beta(3, 5, 500)

    _, (first, second) = run(KsConfig().build(), [[now, now]] * 2, [plain, bursty])

    assert first.level is Level.CRITICAL
    assert second.level is Level.OK
    assert first.statistic == second.statistic
    assert "raised from 0.1 with evidence 8, has 4." in second.reason


def test_a_baseline_of_three_requests_knows_nothing_and_says_so() -> None:
    three = reference(np.full(3, 0.1), ticks=3)
    far = np.full(400, 0.9)

    found = run(KsConfig().build(), [[far]] * 3, [three])

    assert {vs[0].level for vs in found} == {Level.UNKNOWN}
    assert found[-1][0].reason == (
        "3 requests in the baseline, too few at design effect 1: "
        "a complete change would have evidence 2.3, raised from 8"
    )
    assert found[-1][0].cause == "baseline_missing"


def test_a_window_that_is_worth_too_little_knows_nothing_and_says_so() -> None:
    rng = np.random.default_rng(18)
    bursty = replace(reference(rng.beta(2, 5, 20_000)), design_effect=40.0)

    ((verdict,),) = run(KsConfig().build(), [[np.full(300, 0.99)]], [bursty])

    assert verdict.level is Level.UNKNOWN
    assert verdict.reason.startswith("300 requests in the window, too few at design effect 40")
    assert verdict.cause == "input_drift"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(200, 1000), st.floats(1, 60))
def test_a_complete_change_is_either_raised_or_unknown_and_never_ok(
    known: int, live: int, effect: float
) -> None:
    old = replace(reference(np.full(known, 0.1), ticks=1), design_effect=effect)

    ((verdict,),) = run(KsConfig(persistence=1).build(), [[np.full(live, 0.9)]], [old])

    assert verdict.level in {Level.CRITICAL, Level.UNKNOWN}


def test_a_stream_that_cannot_be_judged_any_more_stays_as_it_was() -> None:
    rng = np.random.default_rng(19)
    known = reference(rng.beta(2, 5, 20_000))
    poor = replace(known, design_effect=200.0)  # of the same id: nothing else tells them apart
    detector = KsConfig().build()
    memory = detector.start()
    levels = []

    for number, used in enumerate([known] * 2 + [poor] * 4 + [known]):
        drifted = rng.beta(6, 3, 300) if number < 2 else rng.beta(2, 5, 250)
        memory, (verdict,) = detector.step(
            memory, a_panel([GRID.count(drifted)], [used], number=number)
        )
        levels.append(verdict.level)

    assert levels[1] is Level.CRITICAL
    assert levels[2:6] == [Level.UNKNOWN] * 4
    assert levels[6] is Level.CRITICAL, "calm that nobody could judge clears nothing"


@pytest.mark.parametrize("jump", [timedelta(hours=2), -timedelta(days=1)], ids=["on", "back"])
def test_a_clock_that_is_set_changes_no_window(jump: timedelta) -> None:
    rng = np.random.default_rng(20)
    known = reference(rng.beta(2, 5, 20_000))
    panels = [
        a_panel([GRID.count(rng.beta(2, 5, 10))], [known], number=number) for number in range(40)
    ]
    set_in_between = [
        replace(panel, start=panel.start + jump) if panel.number >= 5 else panel for panel in panels
    ]

    plain, jumped = (
        [verdict.samples for (verdict,) in steps(KsConfig(window_seconds=60).build(), given)]
        for given in (panels, set_in_between)
    )

    assert jumped == plain


def test_a_flag_that_never_was_set_and_now_is_drifts() -> None:
    looping = reference(np.zeros(20_000), signal="output_looping")
    now = (np.arange(400) % 4 == 0).astype(np.float64)

    found = run(KsConfig(side="output").build(), [[now], [now]], [looping], signal="output_looping")

    assert found[-1][0].level is Level.CRITICAL
    assert "P(output_looping > 0): baseline 0 %, live 25 %" in found[-1][0].reason


@pytest.fixture(scope="module")
def surprisal(fixtures: Path) -> dict[str, FloatArray]:
    path = fixtures / "surprisal" / "corpus-0.32.0.json"
    return {name: np.asarray(found) for name, found in json.loads(path.read_text()).items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a-baseline-reseed", Level.OK),
        ("a-baseline-otherprompts", Level.OK),
        ("c-temp0.7", Level.CRITICAL),
        ("c-temp1.5", Level.CRITICAL),
    ],
)
def test_real_answers_drift_with_temperature_and_not_with_seed_or_prompts(
    name: str, expected: Level, surprisal: dict[str, FloatArray]
) -> None:
    known = reference(surprisal["a-baseline"], signal=SURPRISAL)
    halves = np.array_split(surprisal[name], 2)
    detector = KsConfig(side="output", minimum_requests=100).build()

    found = run(detector, [[half] for half in halves], [known], signal=SURPRISAL)

    assert found[-1][0].level is expected
    assert found[-1][0].cause == "output_drift"


@pytest.mark.parametrize(
    ("settings_", "expected"),
    [
        ({"signals": ("output_tokens",)}, "'output_tokens' is of the output side"),
        ({"minimum_requests": 900}, "at most three quarters of window_requests 1000"),
        ({"distance": 0}, "greater than 0"),
    ],
)
def test_bad_settings_are_refused(settings_: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        KsConfig.model_validate(settings_)


def test_an_unknown_signal_lists_the_known_ones() -> None:
    with pytest.raises(ValidationError, match=r"'prompt_tokenz' is not .*prompt_json_ratio"):
        KsConfig(signals=("prompt_tokenz",))
