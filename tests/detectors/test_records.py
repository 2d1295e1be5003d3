"""The records that travel the data path."""

from __future__ import annotations

import pickle

import pytest

from detectors.records import TIER_SCOPE, Absence, Level, Scope
from tests.builders import a_batch, a_reading


@pytest.mark.parametrize("scope", [TIER_SCOPE, Scope("target", "a:8000"), Scope("segment", "x")])
def test_a_scope_reads_back_what_it_wrote(scope: Scope) -> None:
    assert Scope.parse(str(scope)) == scope


@pytest.mark.parametrize("text", ["", "tier:x", "target:", "segment", "region:eu"])
def test_a_bad_scope_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected 'tier', 'target:NAME' or 'segment:NAME'"):
        Scope.parse(text)


def test_levels_have_the_numbers_of_the_metric() -> None:
    assert [level.number for level in Level] == [-1, 0, 1, 2]


def test_an_absence_is_told_in_words() -> None:
    idle = a_reading(absent={"requests_running": Absence.NO_SAMPLE})
    down = a_reading(problem="connection refused")

    assert idle.absence("requests_running") == "requests_running: family known but no sample"
    assert idle.absence("ttft_seconds") == "ttft_seconds: family absent"
    assert down.absence("ttft_seconds") == "ttft_seconds: scrape failed: connection refused"
    assert idle.up
    assert not down.up


def test_a_reading_makes_verdicts_about_itself() -> None:
    reading = a_reading({"requests_running": 3.0}, target="a")

    verdict = reading.verdict("limit", "requests_running", Level.OK, statistic=3.0)

    assert verdict.stream.scope == Scope("target", "a")
    assert verdict.at == reading.at
    assert verdict.statistic == 3.0


def test_batches_cross_process_borders() -> None:
    batch = a_batch({"prompt_tokens": [1.0, 2.0]})

    back = pickle.loads(pickle.dumps(batch))

    assert back.columns["prompt_tokens"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("why", "cause"), [(Absence.NOT_IN_VERSION, ""), (Absence.NO_SAMPLE, "kv_cache_saturated")]
)
def test_what_the_version_never_tells_stays_unknown_and_alerts_nobody(
    why: Absence, cause: str
) -> None:
    signal = "kv_cache_usage_ratio"
    reading = a_reading(absent={signal: why})

    verdict = reading.verdict("kv_cache", signal, Level.UNKNOWN, cause="kv_cache_saturated")

    assert (verdict.level, verdict.cause) == (Level.UNKNOWN, cause)
