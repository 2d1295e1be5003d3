"""Frozen references: content, bands, bytes and promotion."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from detectors.baseline import (
    BAND_ALPHA,
    Baseline,
    Stage,
    collecting,
    content_id,
    from_bytes,
    make_baseline,
    merged,
    promoted,
    sufficient,
    to_bytes,
)
from detectors.proportions import clopper_pearson, design_effect
from detectors.records import FloatArray, Scope, Tick
from detectors.signals import grid_of
from tests.builders import START, a_tick

LENGTH, RATIO = "prompt_tokens", "prompt_json_ratio"


def ticks_of(seed: int = 1, ticks: int = 40, each: int = 50) -> list[Tick]:
    rng = np.random.default_rng(seed)
    return [
        a_tick(
            {LENGTH: np.rint(rng.lognormal(5, 1, each)), RATIO: rng.beta(2, 5, each)},
            number=number,
        )
        for number in range(ticks)
    ]


def made(seed: int = 1) -> Baseline:
    return make_baseline(ticks_of(seed), made_at=START, provenance="file test")


def same(left: Baseline, right: Baseline) -> bool:
    return to_bytes(left) == to_bytes(right)


def test_a_baseline_holds_all_counts_of_its_ticks() -> None:
    baseline = made()

    assert baseline.requests == 2000
    assert set(baseline.signals) == {LENGTH, RATIO}
    assert baseline.signals[LENGTH].requests == 2000
    assert baseline.signals[LENGTH].baseline == baseline.id
    assert baseline.stage is baseline.signals[RATIO].stage is Stage.CANDIDATE


def test_thresholds_are_grid_edges_at_the_levels_and_bands_hold_the_share() -> None:
    row = made().signals[RATIO]
    share = np.cumsum(row.counts)[row.thresholds] / row.requests

    assert np.all(np.diff(row.thresholds) > 0)
    assert np.all((row.lower <= share) & (share <= row.upper))
    median = row.thresholds[np.searchsorted(share, 0.5)]
    assert grid_of(RATIO).edges[median] == pytest.approx(0.265, abs=0.02)


def test_order_and_worker_of_the_ticks_do_not_matter() -> None:
    whole = ticks_of()
    halves = [
        half
        for tick in whole
        for half in (
            a_tick({}, number=tick.number).plus(tick),
            a_tick({}, number=tick.number),
        )
    ]

    shuffled = make_baseline(whole[::-1], made_at=START, provenance="file test")
    joined = make_baseline(halves, made_at=START, provenance="file test")

    assert same(shuffled, made())
    assert same(joined, made())


def test_the_id_is_that_of_the_content_alone() -> None:
    later = make_baseline(ticks_of(), made_at=START.replace(hour=13), provenance="another file")

    assert later.id == made().id
    assert made(2).id != made().id
    assert promoted(made(), author="a person", reason="good").id == made().id
    assert content_id(made()) == made().id


def test_bytes_read_back_whole() -> None:
    baseline = promoted(made(), author="a person", reason="known to be good")

    back = from_bytes(to_bytes(baseline))

    assert same(back, baseline)
    assert back.stage is Stage.ACTIVE
    assert back.made_at == START
    assert np.array_equal(back.signals[LENGTH].lower, baseline.signals[LENGTH].lower)
    assert back.signals[LENGTH].counts.flags.writeable


def changed(field: str, value: object) -> bytes:
    raw = msgspec.msgpack.decode(to_bytes(made()))
    if field in raw:
        raw[field] = value
    else:
        raw["signals"][RATIO][field] = value
    return msgspec.msgpack.encode(raw)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("design_effect", 1.0),
        ("requests", 2001),
        ("tier", "other"),
        ("id", "bl_0000000000000000"),
        ("counts", np.ones(grid_of(RATIO).bins, dtype="<i8").tobytes()),
        ("upper", b"\0" * 8 * 3),
    ],
)
def test_a_changed_baseline_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match="it was changed after it was made"):
        from_bytes(changed(field, value))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a baseline",
        changed("format", 99),
        changed("stage", "great"),
        changed("scope", "moon"),
        changed("counts", b"123"),
        to_bytes(made())[:-5],
    ],
    ids=["empty", "text", "format", "stage", "scope", "half a number", "cut"],
)
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        from_bytes(data)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_no_flipped_byte_passes_unseen(data: st.DataObject) -> None:
    plain = to_bytes(made())
    place = data.draw(st.integers(0, len(plain) - 1))
    flipped = bytearray(plain)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))

    try:
        back = from_bytes(bytes(flipped))
    except ValueError:
        return
    assert content_id(back) == made().id, "only what is outside the id may differ"


def test_merging_adds_counts_and_keeps_the_larger_design_effect() -> None:
    left, right = made(1), made(2)

    both = merged(left, right, made_at=START, provenance="two files")

    row = both.signals[LENGTH]
    assert both.requests == 4000
    assert row.requests == 4000
    assert row.design_effect == max(
        left.signals[LENGTH].design_effect, right.signals[LENGTH].design_effect
    )
    assert both.id == content_id(both)
    assert both.stage is Stage.CANDIDATE
    assert same(from_bytes(to_bytes(both)), both)


def test_baselines_of_two_streams_do_not_merge() -> None:
    other = make_baseline(
        [a_tick({RATIO: np.full(50, 0.5)}, scope=Scope("segment", "x"))],
        made_at=START,
        provenance="file test",
    )

    with pytest.raises(ValueError, match="do not merge"):
        merged(made(), other, made_at=START, provenance="two files")


def test_merging_keeps_signals_that_one_side_alone_has() -> None:
    other = make_baseline(
        [a_tick({"temperature": np.ones(50)})], made_at=START, provenance="file test"
    )

    both = merged(made(), other, made_at=START, provenance="two files")

    assert set(both.signals) == {LENGTH, RATIO, "temperature"}
    assert {row.baseline for row in both.signals.values()} == {both.id}


def test_a_promotion_has_an_author_and_a_reason_and_does_not_touch_the_old_one() -> None:
    candidate = made()

    active = promoted(candidate, author="a person", reason="after the release")

    assert active.stage is active.signals[RATIO].stage is Stage.ACTIVE
    assert (active.author, active.reason) == ("a person", "after the release")
    assert candidate.stage is Stage.CANDIDATE
    with pytest.raises(ValueError, match="an author and a reason"):
        promoted(candidate, author=" ", reason="why not")
    with pytest.raises(ValueError, match="never a candidate again"):
        promoted(active, author="a person", reason="back", stage=Stage.CANDIDATE)


def test_ticks_of_two_streams_or_without_counts_make_no_baseline() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        make_baseline([a_tick({}), a_tick({}, variant="v2")], made_at=START, provenance="file test")
    with pytest.raises(ValueError, match="exactly one"):
        make_baseline([], made_at=START, provenance="file test")
    with pytest.raises(ValueError, match="the ticks hold none"):
        make_baseline([a_tick({})], made_at=START, provenance="file test")


def test_progress_is_told_in_words() -> None:
    assert collecting(1234, 20_000) == "collecting, 1,234 of 20,000 requests"
    assert not sufficient(19_999, 20_000)
    assert sufficient(20_000, 20_000)
    assert not sufficient(5, 0)


def test_bands_are_those_of_clopper_and_pearson() -> None:
    lower, upper = clopper_pearson(np.asarray([0.0, 3.0, 100.0]), 100, 0.05)

    exact = stats.binomtest(3, 100).proportion_ci(0.95, method="exact")
    assert (lower[0], upper[2]) == (0.0, 1.0)
    assert (lower[1], upper[1]) == (pytest.approx(exact.low), pytest.approx(exact.high))


def test_bands_hold_the_truth_of_all_thresholds_as_often_as_promised() -> None:
    rng = np.random.default_rng(41)
    edges = grid_of(RATIO).array
    missed = 0
    for _ in range(200):
        tick = a_tick({RATIO: rng.beta(2, 5, 400)})
        row = make_baseline([tick], made_at=START, provenance="file test").signals[RATIO]
        truth = stats.beta.cdf(edges[row.thresholds], 2, 5)
        missed += bool(np.any((truth < row.lower) | (truth > row.upper)))

    assert missed <= 200 * BAND_ALPHA + 3 * np.sqrt(200 * BAND_ALPHA)


def series(values: FloatArray, ticks: int) -> np.ndarray:
    return np.stack([grid_of(RATIO).count(part) for part in np.array_split(values, ticks)])


def test_the_design_effect_of_independent_traffic_is_about_one() -> None:
    rng = np.random.default_rng(42)

    assert 1.0 <= design_effect(series(rng.beta(2, 5, 20_000), 400)) < 1.6


def test_sessions_of_like_requests_raise_the_design_effect() -> None:
    rng = np.random.default_rng(43)
    sessions = np.repeat(rng.beta(2, 5, 1000), 20)  # 20 equal requests in a row

    assert 10 < design_effect(series(sessions, 400)) < 35


def test_short_or_constant_traffic_has_no_design_effect() -> None:
    assert design_effect(series(np.full(1000, 0.5), 40)) == 1.0
    assert design_effect(series(np.random.default_rng(44).random(100), 5)) == 1.0
