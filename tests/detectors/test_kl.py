"""KL of production against its baseline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from detectors.baseline import SignalBaseline
from detectors.kl import Kl, KlConfig
from detectors.ks import KsConfig
from detectors.records import FloatArray, Level, Verdict
from tests.detectors.panels import a_baseline, panels_of

SIGNAL = "output_surprisal_mean_nats"


def reference(values: FloatArray) -> SignalBaseline:
    return a_baseline(values, signal=SIGNAL).signals[SIGNAL]


def run(
    detector: Kl,
    draws: Sequence[Sequence[FloatArray]],
    references: Sequence[SignalBaseline | None],
) -> list[tuple[Verdict, ...]]:
    memory = detector.start()
    found = []
    for panel in panels_of(draws, references, signal=SIGNAL):
        memory, verdicts = detector.step(memory, panel)
        found.append(verdicts)
    return found


def test_answers_as_before_raise_nothing_in_four_thousand_verdicts() -> None:
    rng = np.random.default_rng(21)
    references = [reference(rng.normal(4.2, 0.9, 20_000)) for _ in range(20)]

    found = run(
        KlConfig().build(),
        [[rng.normal(4.2, 0.9, 50) for _ in references] for _ in range(204)],
        references,
    )

    assert {v.level for verdicts in found[4:] for v in verdicts} == {Level.OK}


def test_half_a_standard_deviation_is_critical_within_the_stated_requests() -> None:
    rng = np.random.default_rng(22)
    references = [reference(rng.normal(4.2, 0.9, 20_000)) for _ in range(10)]
    before = [[rng.normal(4.2, 0.9, 50) for _ in references] for _ in range(25)]
    after = [[rng.normal(4.65, 0.9, 50) for _ in references] for _ in range(25)]

    found = run(KlConfig().build(), [*before, *after], references)

    assert {verdict.level for verdict in found[24 + 22]} == {Level.CRITICAL}  # 1,100 requests
    assert {verdict.cause for verdict in found[-1]} == {"output_drift"}


def test_chance_is_taken_off_before_the_floor() -> None:
    rng = np.random.default_rng(23)

    ((verdict,),) = run(
        KlConfig().build(),
        [[rng.normal(4.2, 0.9, 200)]],
        [reference(rng.normal(4.2, 0.9, 20_000))],
    )

    assert verdict.statistic is not None
    assert verdict.details["kl_nats"] > verdict.details["null_mean_nats"] * 0.5
    assert verdict.statistic == pytest.approx(
        max(0.0, verdict.details["kl_nats"] - verdict.details["null_mean_nats"])
    )


def test_real_answers_at_another_temperature_diverge_and_reseeded_ones_do_not(
    fixtures: Path,
) -> None:
    corpus = json.loads((fixtures / "surprisal" / "corpus-0.32.0.json").read_text())
    known = reference(np.asarray(corpus["a-baseline"]))
    detector = KlConfig(minimum_requests=100).build()

    levels = {
        name: run(
            detector, [[half] for half in np.array_split(np.asarray(corpus[name]), 2)], [known]
        )[-1][0].level
        for name in ("a-baseline-reseed", "a-baseline-otherprompts", "c-temp0.7", "c-temp1.5")
    }

    assert levels == {
        "a-baseline-reseed": Level.OK,
        "a-baseline-otherprompts": Level.OK,
        "c-temp0.7": Level.CRITICAL,
        "c-temp1.5": Level.CRITICAL,
    }


def test_answers_that_are_all_the_same_do_not_diverge_from_themselves() -> None:
    found = run(KlConfig().build(), [[np.zeros(300)]], [reference(np.zeros(5000))])

    assert found[0][0].level is Level.OK


def test_answers_that_became_all_the_same_do() -> None:
    found = run(
        KlConfig().build(),
        [[np.zeros(300)]] * 2,
        [reference(np.random.default_rng(24).normal(4.2, 0.9, 20_000))],
    )

    assert found[-1][0].level is Level.CRITICAL
    assert found[-1][0].evidence == 300.0


def test_one_tick_of_other_answers_raises_nothing_and_two_do() -> None:
    known = reference(np.random.default_rng(25).normal(4.2, 0.9, 20_000))

    found = run(KlConfig().build(), [[np.full(300, 9.0)]] * 2, [known])

    assert [vs[0].level for vs in found] == [Level.OK, Level.CRITICAL]
    assert found[0][0].details["breached"] == 1.0
    assert found[0][0].reason.endswith(", 1 of 2 ticks in a row")


def test_a_baseline_of_three_answers_knows_nothing_and_says_so() -> None:
    three = a_baseline(np.full(3, 4.2), signal=SIGNAL, ticks=3).signals[SIGNAL]

    found = run(KlConfig().build(), [[np.full(300, 9.0)]] * 3, [three])

    assert {vs[0].level for vs in found} == {Level.UNKNOWN}
    assert found[-1][0].reason.startswith("3 requests in the baseline, too few at design effect 1")
    assert found[-1][0].cause == "baseline_missing"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(200, 1000), st.floats(1, 60))
def test_a_complete_change_is_either_raised_or_unknown_and_never_ok(
    known: int, live: int, effect: float
) -> None:
    old = replace(
        a_baseline(np.full(known, 4.2), signal=SIGNAL, ticks=1).signals[SIGNAL],
        design_effect=effect,
    )

    ((verdict,),) = run(KlConfig(persistence=1).build(), [[np.full(live, 9.0)]], [old])

    assert verdict.level in {Level.CRITICAL, Level.UNKNOWN}


def test_ks_and_kl_state_the_same_psi_of_the_same_counts() -> None:
    rng = np.random.default_rng(26)
    known = reference(rng.normal(4.2, 0.9, 20_000))
    panel = next(panels_of([[rng.normal(4.6, 0.9, 20_000)]], [known], signal=SIGNAL))
    by_kl, by_ks = KlConfig().build(), KsConfig(side="output").build()

    (one,) = by_kl.step(by_kl.start(), panel)[1]
    (other,) = by_ks.step(by_ks.start(), panel)[1]

    assert one.effect == other.effect
    assert one.effect == pytest.approx((0.4 / 0.9) ** 2, rel=0.1)  # of two shifted normals


def test_only_output_signals_are_taken() -> None:
    with pytest.raises(ValidationError, match="'prompt_tokens' is of the input side"):
        KlConfig(signal="prompt_tokens")
    with pytest.raises(ValidationError, match="three quarters"):
        KlConfig(minimum_requests=999)
