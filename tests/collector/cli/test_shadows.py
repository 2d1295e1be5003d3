"""`shadow compare` on recorded models: what is harmless passes, what is lossy fails, in words."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collector.cli.root import fusewire
from collector.shadow.report import ShadowReport
from tests.collector.shadow.lines import FIXTURES, completion, scored, write

SECRET = "tell nobody"


def compare(*arguments: str | Path) -> Result:
    return CliRunner().invoke(fusewire, ["shadow", "compare", *map(str, arguments)])


def report(reference: str, candidate: str, *options: str) -> ShadowReport:
    files = (FIXTURES / f"{name}.jsonl.gz" for name in (reference, candidate))
    result = compare(*files, "--json", *options)
    found = ShadowReport.model_validate_json(result.stdout)
    assert result.exit_code == {"pass": 0, "fail": 1, "not_yet": 3}[found.answer.value]
    return found


@pytest.mark.parametrize(
    ("reference", "candidate", "answer", "least", "most"),
    [
        ("teacher-forced-base", "teacher-forced-base", "pass", 0, 0),
        ("teacher-forced-base", "teacher-forced-fp32", "pass", 5e-5, 8e-5),
        ("teacher-forced-base", "teacher-forced-int8", "pass", 1e-4, 3e-4),
        ("teacher-forced-base", "teacher-forced-int4", "fail", 2e-2, 4e-2),
        ("a-baseline", "teacher-forced-fp32", "pass", 5e-5, 8e-5),
        ("a-baseline", "teacher-forced-int8", "pass", 1e-4, 3e-4),
        ("a-baseline", "teacher-forced-int4", "fail", 2e-2, 4e-2),
        ("a-baseline", "a-baseline", "pass", 0, 0),
        ("a-baseline", "d-shadow-fp32", "pass", 5e-5, 8e-5),
        ("a-baseline", "d-shadow-int8", "pass", 1e-4, 3e-4),
        ("a-baseline", "d-shadow-int4", "fail", 1.5e-2, 4e-2),
    ],
)
def test_harmless_changes_pass_and_four_bits_fail(
    reference: str, candidate: str, answer: str, least: float, most: float
) -> None:
    found = report(reference, candidate)

    assert found.answer == answer
    estimate = found.paired_divergence
    assert estimate.mean_nats is not None
    assert least <= estimate.mean_nats <= most
    assert estimate.lower_nats <= estimate.mean_nats <= estimate.upper_nats
    if answer == "fail":
        assert estimate.requests_used < 20
        assert estimate.lower_nats > found.limit_nats


def test_other_seeds_give_other_texts_which_alone_are_no_evidence() -> None:
    found = report("a-baseline", "a-baseline-reseed")

    assert found.answer == "not_yet"
    assert found.paired_divergence.mean_nats == 0
    assert found.hidden_tokens > found.tokens / 2
    assert [one.code for one in found.remarks if one.forbids_pass] == ["hidden_tokens"]


def test_lists_on_both_sides_give_bounds_and_the_answers_their_equality() -> None:
    found = report("a-baseline", "d-shadow-int4")

    assert found.direction == "KL(production || candidate)"
    assert found.head_k3 is not None
    assert found.head_k3.mean_nats is not None
    assert found.kl_lower_nats is not None
    assert found.tv is not None
    assert found.js_nats is not None
    assert found.equal_answers is not None
    assert 0.005 < found.kl_lower_nats < found.head_k3.mean_nats < 0.03
    assert 0 < found.js_nats.lower < found.js_nats.upper <= 0.6932
    assert 0 < found.tv.lower < found.tv.upper <= 1
    assert (found.equal_answers.equal, found.equal_answers.answers) == (9, 40)
    assert found.equal_answers.lower < 9 / 40 < found.equal_answers.upper


def test_a_floor_sets_the_limit_from_a_file_or_a_number() -> None:
    floor = str(FIXTURES / "d-shadow-fp32.jsonl.gz")
    from_file = report("a-baseline", "d-shadow-int8", "--floor", floor)
    from_number = report("a-baseline", "d-shadow-int4", "--floor", "0.01")

    assert from_file.floor_nats == pytest.approx(6.4e-5, rel=0.1)
    assert from_file.limit_nats == 0.005
    assert from_number.limit_nats == pytest.approx(0.1)
    assert from_number.answer == "not_yet"


def test_options_are_obeyed() -> None:
    strict = report("teacher-forced-base", "teacher-forced-int8", "--limit", "0.0001")
    waiting = report("teacher-forced-base", "teacher-forced-int8", "--min-requests", "1000")
    sure = report("teacher-forced-base", "teacher-forced-int8", "--alpha", "0.000001")

    assert (strict.answer, strict.limit_nats) == ("fail", 0.0001)
    assert (waiting.answer, "1,000" in waiting.reason) == ("not_yet", True)
    assert (sure.answer, sure.alpha) == ("not_yet", 1e-6)


def test_the_table_ends_with_the_verdict_in_words() -> None:
    files = (FIXTURES / f"{name}.jsonl.gz" for name in ("a-baseline", "d-shadow-int4"))
    result = compare(*files)

    assert result.exit_code == 1
    last = result.stdout.splitlines()[-1]
    assert last.startswith("fail: over the limit of 0.005 nats a token, sure after ")
    for words in ("paired divergence", "KL(production || candidate)", "total variation", "equal"):
        assert words in result.stdout


def test_files_that_do_not_meet_are_not_enough_evidence(tmp_path: Path) -> None:
    left = write(tmp_path / "left", [scored(["a", "b"], [None, -1], id=1)])
    right = write(tmp_path / "right", [scored(["a", "b"], [None, -1], id=2)])
    result = compare(left, right)

    assert result.exit_code == 3
    assert "1 of 1 lines of the reference found no partner" in result.stdout
    assert "no request could be compared" in result.stdout


def test_other_requests_of_the_same_number_are_not_compared(tmp_path: Path) -> None:
    left = write(tmp_path / "left", [completion(["a"], [-1], prompt="p", i=n) for n in range(200)])
    right = write(
        tmp_path / "right", [completion(["a"], [-3], prompt="q", i=n) for n in range(200)]
    )
    result = compare(left, right)

    assert result.exit_code == 3
    assert "another text or request on each side: 200 of 200 pairs" in result.stdout


@pytest.mark.parametrize(
    ("members", "others", "code"),
    [
        ({"logprobs_mode": "raw_logprobs"}, {"logprobs_mode": "processed_logprobs"}, "other_modes"),
        ({"choice": {"token_ids": [1]}}, {"choice": {"token_ids": [2]}}, "different_ids"),
    ],
)
def test_what_cannot_be_compared_neither_passes_nor_fails(
    tmp_path: Path, members: dict[str, object], others: dict[str, object], code: str
) -> None:
    left = write(
        tmp_path / "left",
        [completion(["a"], [-1], i=n, **members) for n in range(200)],  # type: ignore[arg-type]  # members
    )
    right = write(
        tmp_path / "right",
        [completion(["a"], [-6], i=n, **others) for n in range(200)],  # type: ignore[arg-type]  # members
    )
    result = compare(left, right, "--json")
    found = ShadowReport.model_validate_json(result.stdout)

    assert result.exit_code == 3
    assert found.reason.startswith("cannot be compared")
    assert found.remarks[0].code == code


def test_weaker_doubts_are_told_beside_the_answer(tmp_path: Path) -> None:
    left, right = (
        write(
            tmp_path / name,
            [
                completion(
                    ["a", "b"],
                    [-1, last],
                    tops=[tops, {"b": -2.0}],
                    request={"temperature": 0.7},
                    i=n,
                )
                for n in range(200)
            ],
        )
        for name, tops, last in (
            ("left", {"a": -1.0, "c": -2.0}, -2.0),
            ("right", {"x": -1.5, "y": -2.0, "z": -3.0}, -9999.0),
        )
    )
    found = ShadowReport.model_validate_json(compare(left, right, "--json").stdout)
    codes = {one.code for one in found.remarks}

    assert {"temperature", "clamped", "hidden_tokens", "disjoint_support"} <= codes


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (SECRET.encode() + b"\n{}\n", "no line of 2 can be compared"),
        (gzip.compress(b'{"id": 1}\n')[:-9], "cannot be read after line"),
        (b'{"tokens": ["%s"], "token_logprobs": [7], "i": 0}\n' % SECRET.encode(), "line 1"),
    ],
    ids=["empty", "text", "torn gzip", "odd value"],
)
def test_a_file_that_is_none_of_these_ends_the_command(
    tmp_path: Path, data: bytes, words: str
) -> None:
    path = tmp_path / "candidate"
    path.write_bytes(data)
    result = compare(FIXTURES / "teacher-forced-base.jsonl.gz", path)

    assert result.exit_code == 2
    assert words in result.stderr
    assert SECRET not in result.output


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--floor", "0.1", "--limit", "0.1"), 2),
        (("--floor", "-1"), 2),
        (("--floor", "nan"), 2),
        (("--floor", "absent-file"), 2),
        (("--limit", "0"), 2),
        (("--alpha", "1"), 2),
        (("--min-requests", "0"), 2),
    ],
)
def test_wrong_options_are_usage_errors(options: tuple[str, ...], code: int) -> None:
    path = FIXTURES / "teacher-forced-int4.jsonl.gz"

    assert compare(path, path, *options).exit_code == code


def test_a_floor_of_too_few_or_unlike_texts_is_not_enough_evidence(tmp_path: Path) -> None:
    path = FIXTURES / "a-baseline.jsonl.gz"
    few = write(tmp_path / "few", gzip.decompress(path.read_bytes()).splitlines(keepends=True)[:9])

    for floor, words in (
        (few, "30 needed"),
        (FIXTURES / "a-baseline-reseed.jsonl.gz", "not scored"),
    ):
        result = compare(path, path, "--floor", floor)
        assert result.exit_code == 3
        assert words in result.stderr


def test_no_text_of_the_lines_is_ever_printed(tmp_path: Path) -> None:
    lines = [completion([SECRET], [-1], prompt=SECRET, i=n) for n in range(5)]
    left = write(tmp_path / "left", [*lines, SECRET.encode() + b"\n"])
    right = write(tmp_path / "right", [*lines, json.dumps({"id": SECRET}).encode() + b"\n"])
    result = compare(left, right)

    assert result.exit_code == 3
    assert SECRET not in result.output
