"""The sequential detector on answers of a real model: see `tests/fixtures/requests/README.md`."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from detectors.baseline import Baseline, make_baseline
from detectors.records import FloatArray, Level, Verdict
from detectors.sequential_drift import SequentialDriftConfig
from detectors.signals import grid_of
from tests.builders import START, a_tick
from tests.detectors.panels import a_panel

EACH = 5  # requests a tick
ANSWERS = "output_surprisal_mean_nats"
Requests = Mapping[str, FloatArray]


@pytest.fixture(scope="module")
def requests_of(request: pytest.FixtureRequest):
    folder = Path(__file__).parents[1] / "fixtures" / "requests"

    def load(name: str) -> Requests:
        found = json.loads(lzma.decompress((folder / f"{name}.json.xz").read_bytes()))
        return {
            signal: np.asarray([np.nan if value is None else value for value in values])
            for signal, values in found.items()
        }

    return load


def some(requests: Requests, first: int, last: int) -> Requests:
    return {signal: values[first:last] for signal, values in requests.items()}


def size(requests: Requests) -> int:
    return len(next(iter(requests.values())))


def baseline_of(requests: Requests) -> Baseline:
    starts = range(0, size(requests), EACH)
    ticks = [a_tick(some(requests, at, at + EACH), number=at // EACH) for at in starts]
    return make_baseline(ticks, made_at=START, provenance="file corpus")


def found(baseline: Baseline, live: Requests, side: str) -> dict[str, tuple[int, Verdict]]:
    """Return of each signal that was raised after how many requests, and its last verdict."""
    detector = SequentialDriftConfig.model_validate({"side": side}).build()
    names = sorted(detector.signals & set(baseline.signals) & set(live))
    references = [baseline.signals[name] for name in names]
    memory = detector.start()
    first: dict[str, int] = {}
    verdicts: tuple[Verdict, ...] = ()
    for at in range(0, size(live), EACH):
        counts = [grid_of(name).count(live[name][at : at + EACH]) for name in names]
        panel = a_panel(counts, references, signals=names, number=1000 + at // EACH)
        memory, verdicts = detector.step(memory, panel)
        for verdict in verdicts:
            assert verdict.level is not Level.CRITICAL  # 500 requests are no baseline to page by
            if verdict.level is Level.WARNING:
                first.setdefault(verdict.stream.signal, at + EACH)
    last = {verdict.stream.signal: verdict for verdict in verdicts}
    return {signal: (requests, last[signal]) for signal, requests in first.items()}


@pytest.fixture(scope="module")
def whole(requests_of) -> Baseline:
    return baseline_of(requests_of("a-baseline"))


def test_one_half_of_the_baseline_is_quiet_against_the_other(requests_of) -> None:
    requests = requests_of("a-baseline")

    first = baseline_of(some(requests, 0, 250))

    assert found(first, some(requests, 250, 500), "input") == {}
    assert found(first, some(requests, 250, 500), "output") == {}


@pytest.mark.parametrize("name", ["a-baseline-reseed", "a-baseline-otherprompts"])
@pytest.mark.parametrize("side", ["input", "output"])
def test_other_seeds_and_other_prompts_of_the_same_kind_are_quiet(
    name: str, side: str, requests_of, whole: Baseline
) -> None:
    assert found(whole, requests_of(name), side) == {}


def test_json_prompts_are_found_within_ten_requests_and_one_event_names_them_all(
    requests_of, whole: Baseline
) -> None:
    signals = found(whole, requests_of("b-json"), "input")

    assert signals["prompt_json_ratio"][0] <= 10
    assert signals["prompt_digit_ratio"][0] <= 10
    verdict = signals["prompt_json_ratio"][1]
    assert verdict.reason.startswith("P(prompt_json_ratio > 0")
    assert "baseline 0" in verdict.reason
    assert "live 100.0 %" in verdict.reason
    assert verdict.details["event_rank"] == 0.0
    assert verdict.details["event_streams"] >= 3
    assert "others since then: prompt_digit_ratio" in verdict.reason
    follower = signals["prompt_digit_ratio"][1]
    assert "follows prompt_json_ratio" in follower.reason


def test_german_prompts_are_found_by_their_bytes_beyond_ascii(requests_of, whole: Baseline) -> None:
    signals = found(whole, requests_of("b-german"), "input")

    requests, verdict = signals["prompt_nonascii_ratio"]
    assert requests <= 20
    assert verdict.reason.startswith(
        "P(prompt_nonascii_ratio > 0): baseline 0 % [0, 1.3], gate 1.9 %, live 43 % [36, 49]"
    )


@pytest.mark.parametrize(("name", "most", "sign"), [("c-temp0.7", 35, "≤"), ("c-temp1.5", 15, ">")])
def test_another_temperature_is_found_by_the_surprisal_of_the_answers(
    name: str, most: int, sign: str, requests_of, whole: Baseline
) -> None:
    requests, verdict = found(whole, requests_of(name), "output")[ANSWERS]

    assert requests <= most
    assert verdict.reason.startswith(f"P({ANSWERS} {sign} ")
    assert "candidate baseline: informs only" in verdict.reason


def test_loops_are_found_and_the_prompts_behind_them_are_not(requests_of, whole: Baseline) -> None:
    loops = requests_of("e-loops")

    assert found(whole, loops, "output")["output_looping"][0] <= 40
    assert set(found(whole, loops, "input")) == {"max_tokens", "temperature"}
