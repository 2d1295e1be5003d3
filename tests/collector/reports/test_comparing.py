"""What is found of two files: kinds of features, missing values, changed types, level, power."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector.reports.comparing import Compared, compare
from collector.reports.features import Feature, feature_of
from collector.reports.judging import Answer, Correction, Judged, Settings, judge, whole_answer
from collector.reports.records import Column, ColumnBuilder, TableError
from detectors.beyond_gate import allowed_down
from detectors.records import FloatArray
from detectors.sequential.band import Gate
from tests.collector.reports.tables import Rows, compared, opened, quiet, write

GATE = Settings().gate


def column(values: FloatArray) -> Column:
    builder = ColumnBuilder()
    builder.take_numbers(values)
    return builder.built()


def feature(reference: FloatArray, current: FloatArray, name: str = "x") -> Feature:
    found = feature_of(name, column(reference), column(current), GATE)
    assert isinstance(found, Feature)
    return found


def by_name(found: Compared) -> Mapping[str, Judged]:
    return {one.feature.name: one for one in found.judged}


def of(folder: Path, reference: Rows, current: Rows, settings: Settings | None = None) -> Compared:
    return compared(
        write(folder / "ref.jsonl", reference), write(folder / "cur.jsonl", current), settings
    )


def test_a_shift_of_the_body_is_outside_and_the_words_say_where() -> None:
    rng = np.random.default_rng(0)

    (found,) = judge([feature(rng.normal(size=4000), rng.normal(0.7, 1, size=4000))], Settings())

    assert found.answer is Answer.OUTSIDE
    assert found.reason.startswith("P(x ")
    assert "gate to" in found.reason
    assert found.corrected_gate_p < 1e-6
    assert found.feature.ks is not None
    assert found.feature.ks.p < found.gate_p


def test_one_percent_of_prompts_thirty_times_longer_is_outside_by_the_odds_of_the_tail() -> None:
    rng = np.random.default_rng(1)
    reference = np.exp(rng.normal(6, 1, 100_000))
    current = np.exp(rng.normal(6, 1, 20_000)) * np.where(rng.random(20_000) < 0.01, 30, 1)

    (found,) = judge([feature(reference, current)], Settings())

    assert found.answer is Answer.OUTSIDE
    assert found.feature.distance < 0.02
    assert found.odds_ratio > 4
    assert found.reason.startswith("P(x > ")


def test_a_sure_change_within_the_gate_is_inside() -> None:
    rng = np.random.default_rng(2)

    found = judge([feature(rng.normal(size=50_000), rng.normal(0.05, 1, size=50_000))], Settings())

    assert found[0].answer is Answer.INSIDE
    assert found[0].corrected_ks_p is not None
    assert found[0].corrected_ks_p < 1e-6
    assert "would be seen" in found[0].reason


def test_a_sure_change_near_the_gate_is_unsure_until_there_are_more_rows() -> None:
    rng = np.random.default_rng(3)
    reference = rng.random(3000)
    current = allowed_down(rng.random(3000), Gate(0.08, 2.5))

    (found,) = judge([feature(reference, current)], Settings())

    assert found.answer is Answer.UNSURE
    assert "more rows are needed" in found.reason


def test_few_rows_are_unsure_and_say_what_they_would_show() -> None:
    rng = np.random.default_rng(4)

    (found,) = judge([feature(rng.random(100), rng.random(100))], Settings())
    (handful,) = judge([feature(rng.random(5), rng.random(5))], Settings())
    (asked,) = judge([feature(rng.random(100), rng.random(100))], replace(Settings(), must_see=0.5))

    assert found.answer is handful.answer is Answer.UNSURE
    assert "100 rows show none under 0.4" in found.reason
    assert "5 rows show no distance" in handful.reason
    assert asked.answer is Answer.INSIDE


def test_a_narrow_change_between_thresholds_is_found_by_the_distance_itself() -> None:
    rng = np.random.default_rng(5)
    reference = rng.random(400_000)
    current = rng.random(400_000)
    cell = (current > 0.5) & (current < 0.55)
    current[cell] = 0.549999
    settings = replace(Settings(), gate=Gate(0.02, 1e9))

    (found,) = judge([feature(reference, current)], settings)

    assert found.answer is Answer.OUTSIDE
    assert found.reason == "KS distance 0.050 with gate 0.02"


@pytest.mark.parametrize("kind", ["normal", "ties", "constant"])
def test_at_equal_distributions_nothing_is_outside(kind: str) -> None:
    rng = np.random.default_rng(6)

    def draw() -> FloatArray:
        ties = rng.integers(0, 4, 700).astype(float)
        return {"normal": rng.normal(size=700), "ties": ties, "constant": np.full(700, 3.0)}[kind]

    features = [feature(draw(), draw(), name=f"f{i}") for i in range(60)]

    corrections: tuple[Correction, ...] = ("holm", "bh")
    for correction in corrections:
        judged = judge(features, Settings(correction=correction, alpha=0.05))
        assert {one.answer for one in judged} == {Answer.INSIDE}


def test_at_the_gates_edge_hardly_any_report_has_a_finding() -> None:
    rng = np.random.default_rng(7)
    reports = 60
    found = 0
    for _ in range(reports):
        features = [
            feature(rng.random(2000), allowed_down(rng.random(2000), GATE)) for _ in range(2)
        ]
        found += whole_answer(judge(features, Settings(alpha=0.1))) is Answer.OUTSIDE

    assert found <= 0.1 * reports


def test_missing_values_missing_columns_and_changed_types_are_outside(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    plain = [*map(float, rng.random(600))]
    holes = [None if i % 3 == 0 else value for i, value in enumerate(plain)]
    words = [f"n/a {i}" for i in range(600)]

    found = of(
        tmp_path,
        {"holes": plain, "gone": plain, "typed": plain, "same": plain},
        {"holes": holes, "typed": words, "same": plain, "new": plain},
    )

    judged = by_name(found)
    assert judged["holes"].reason.startswith("P(missing): REF 0 % [0, ")
    assert judged["gone"].reason.startswith("P(missing): REF 0 %")
    assert judged["typed"].reason.startswith("P(typed is text): REF 0 %")
    assert judged["typed"].feature.remarks == ("stored as float64 in REF, text in CUR",)
    assert [judged[name].answer for name in ("holes", "gone", "typed", "same")] == [
        *[Answer.OUTSIDE] * 3,
        Answer.INSIDE,
    ]
    assert found.skipped == (("new", "is not in REF"),)


def test_categories_are_compared_one_with_all_others(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    models = rng.choice(["small", "large", "tiny"], 3000, p=[0.6, 0.35, 0.05]).tolist()
    now = rng.choice(["small", "large", "tiny", "new"], 3000, p=[0.6, 0.2, 0.05, 0.15]).tolist()
    flags = (rng.random(3000) < 0.5).tolist()

    judged = by_name(of(tmp_path, {"m": models, "b": flags}, {"m": now, "b": flags[::-1]}))

    assert judged["m"].answer is Answer.OUTSIDE
    assert judged["m"].reason.startswith("P(m is another value): REF 0 %")
    assert [one.name for one in judged["m"].feature.categories] == ["small", "large", "tiny", ""]
    assert judged["m"].feature.distance == pytest.approx(0.15, abs=0.02)
    assert judged["m"].feature.ks is None
    assert judged["b"].answer is Answer.INSIDE
    assert judged["b"].feature.kind == "category"


def test_free_text_is_compared_by_its_length_and_never_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(10)
    secret = [f"secret {i} " + "x" * int(size) for i, size in enumerate(rng.integers(1, 40, 900))]
    longer = [text + "y" * 30 for text in secret]

    found = of(tmp_path, {"prompt": secret}, {"prompt": longer})

    (judged,) = found.judged
    assert judged.feature.kind == "text"
    assert judged.answer is Answer.OUTSIDE
    assert "characters of prompt" in judged.reason
    assert "secret" not in repr(judged)


def test_columns_without_values_or_of_lists_are_named_and_not_judged(tmp_path: Path) -> None:
    found = of(tmp_path, {"a": [None] * 5, "b": [None] * 5}, {"a": [None] * 5, "b": [1] * 5})

    assert found.skipped == (
        ("a", "has no value on either side"),
        ("b", "has no value in REF"),
    )
    assert whole_answer(found.judged) is Answer.UNSURE


def test_only_named_columns_are_compared_and_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", {"a": range(9), "b": range(9)})
    tables = opened(path), opened(path)

    found = compare(*tables, Settings(), only=["b"], progress=quiet)

    assert list(by_name(found)) == ["b"]
    with pytest.raises(TableError, match="has no column 'c'; it has 'a', 'b'"):
        compare(*tables, Settings(), only=["c"], progress=quiet)


def test_rounding_of_whole_numbers_is_remarked(tmp_path: Path) -> None:
    big = [2**60 + i for i in range(9)]

    judged = by_name(of(tmp_path, {"n": big}, {"n": [float(n) for n in big]}))

    assert "whole numbers beyond 2^53 are compared as rounded to float64" in (
        judged["n"].feature.remarks
    )
