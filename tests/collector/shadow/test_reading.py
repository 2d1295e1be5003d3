"""Every shape that tells tokens and logprobs is read; what is no such line is refused, unquoted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from collector.shadow.aligning import align
from collector.shadow.reading import ScoreReader
from collector.shadow.records import LineProblemError, Refusal, Scored, Sequenced
from tests.collector.shadow.lines import FIXTURES, chat, completion, prompt_maps, scored, to_line

SECRET = "tell nobody"


def read(line: bytes) -> Scored:
    return ScoreReader().read(line)


def written(line: bytes) -> Sequenced:
    found = read(line).generated
    assert found is not None
    return found


def prompt_of(line: bytes) -> Sequenced:
    found = read(line).prompt
    assert found is not None
    return found


def test_scored_text_is_a_prompt_with_a_first_token_without_logprob() -> None:
    found = prompt_of(scored(["a", "b"], [None, -1.5]))

    assert list(found.labels) == ["a", "b"]
    assert np.isnan(found.logprobs[0])
    assert found.logprobs[1] == -1.5


def test_a_sampled_token_beside_the_k_largest_is_not_one_of_them() -> None:
    found = written(
        completion(["x", "b"], [-7, -1], tops=[{"x": -7, "a": -0.5, "b": -1}, {"b": -1, "a": -2}])
    )

    assert [dict(top) for top in found.tops] == [{"a": -0.5, "b": -1}, {"b": -1, "a": -2}]
    assert found.k == 2


def test_a_chat_list_is_sure_without_its_smallest() -> None:
    found = written(chat([("x", -7, {"a": -0.5, "b": -1, "x": -7})]))

    assert [dict(top) for top in found.tops] == [{"a": -0.5, "b": -1}]


def test_candidates_that_render_alike_are_left_out() -> None:
    top = {"a": -0.5, "\ufffd": -1.0, "b": -2.0}
    found = written(completion(["a"], [-0.5], tops=[top]))

    assert set(found.tops[0]) == {"a", "b"}


def test_a_prompt_map_names_its_own_token_by_id_or_by_rank() -> None:
    maps = [None, {7: ("x", -6.0, 40), 1: ("a", -0.5, 1)}, {1: ("a", -0.4, 1), 2: (None, -1.5, 2)}]

    by_rank = prompt_of(prompt_maps(maps, request={"prompt": "Say", "prompt_logprobs": 1}))
    by_id = prompt_of(prompt_maps(maps, ids=[9, 7, 1]))

    assert list(by_rank.labels) == ["", "x", "token_id:2"]
    assert list(by_id.labels) == ["token_id:9", "x", "a"]
    assert by_id.logprobs[1:].tolist() == [-6.0, -0.4]
    assert by_id.ids == [9, 7, 1]


def test_a_prompt_map_without_order_is_refused_rather_than_guessed() -> None:
    maps = [None, {7: ("x", -6.0, 9), 1: ("a", -0.5, 3), 2: ("b", -0.4, 2)}]
    line = prompt_maps(maps, request={"prompt": "Say", "prompt_logprobs": 3})

    with pytest.raises(LineProblemError, match="return_token_ids") as caught:
        read(line)

    assert caught.value.reason is Refusal.PROMPT_ORDER


def test_an_echo_is_parted_by_the_usage() -> None:
    line = json.loads(completion(["Say", "it", "!"], [-9, -1, -2], request={"echo": True}))
    line["response"]["usage"] = {"prompt_tokens": 1}
    found = read(to_line(line))
    del line["response"]["usage"]

    assert found.prompt is not None
    assert found.generated is not None
    assert list(found.prompt.labels) == ["Say"]
    assert list(found.generated.labels) == ["it", "!"]
    assert len(prompt_of(to_line(line))) == 3


def test_a_stream_reads_as_the_answer_in_one_piece() -> None:
    whole = json.loads(completion(["a", "b"], [-1, -2], tops=[{"a": -1, "c": -3}, {"b": -2}]))
    choice = whole["response"]["choices"][0]
    chunks = []
    for place in (0, 1):
        lists = {key: values[place : place + 1] for key, values in choice["logprobs"].items()}
        chunks.append({"choices": [{"index": 0, "logprobs": lists, "token_ids": [place]}]})
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"

    once = written(to_line(whole))
    for response in (chunks, events, json.dumps(whole["response"])):
        found = written(to_line({**whole, "response": response}))
        assert list(found.labels) == list(once.labels)
        assert found.logprobs.tolist() == once.logprobs.tolist()
        assert list(found.tops) == list(once.tops)
    assert written(to_line({**whole, "response": chunks})).ids == [0, 1]


def test_tgi_is_read_without_special_tokens() -> None:
    details = {
        "finish_reason": "eos_token",
        "prefill": [
            {"id": 1, "text": "Say", "logprob": None},
            {"id": 2, "text": "x", "logprob": -3},
        ],
        "tokens": [
            {"id": 3, "text": "a", "logprob": -1, "special": False},
            {"id": 2, "text": "</s>", "logprob": -0.1, "special": True},
        ],
        "top_tokens": [[{"text": "a", "logprob": -1}, {"text": "b", "logprob": -2}], []],
    }
    found = read(to_line({"request": {"inputs": "Say"}, "response": {"details": details}}))

    assert found.stopped
    assert found.generated is not None
    assert found.prompt is not None
    assert list(found.generated.labels) == ["a"]
    assert dict(found.generated.tops[0]) == {"a": -1, "b": -2}
    assert found.prompt.logprobs[1] == -3


def test_a_stand_in_for_no_chance_is_marked() -> None:
    found = written(completion(["a", "b"], [-1, -9999.0]))

    assert found.clamped.tolist() == [False, True]
    assert np.isnan(found.logprobs[1])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", Refusal.MALFORMED),
        (b"[]", Refusal.MALFORMED),
        (b'{"tokens":["%s"],"token_logprobs":["x"]}' % SECRET.encode(), Refusal.MALFORMED),
        (b'{"tokens":["\xff%s"],"token_logprobs":[-1]}' % SECRET.encode(), Refusal.MALFORMED),
        (scored([SECRET], [None, -1]), Refusal.MALFORMED),
        (b'{"response":' + b"[" * 5000 + b"}", Refusal.MALFORMED),
        (to_line({"response": f"data: {SECRET}"}), Refusal.MALFORMED),
        (scored([SECRET], [0.5]), Refusal.LOGITS),
        (completion(["a"], [-1], tops=[{SECRET: 3.0, "a": -1}]), Refusal.LOGITS),
        (scored([SECRET], [None]), Refusal.NO_LOGPROBS),
        (to_line({"request": {"prompt": SECRET}, "response": {}}), Refusal.NO_LOGPROBS),
        (to_line({"response": {"error": {"message": SECRET}}}), Refusal.ENGINE_ERROR),
        (to_line({"response": {"object": "error", "message": SECRET}}), Refusal.ENGINE_ERROR),
        (completion([SECRET], [-1], status=503), Refusal.ENGINE_ERROR),
        (prompt_maps([{1: (SECRET, -1, 1)}]).replace(b'"1"', b'"one"'), Refusal.MALFORMED),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_without_its_text(
    line: bytes, reason: Refusal
) -> None:
    with pytest.raises(LineProblemError) as caught:
        read(line)

    assert caught.value.reason is reason
    assert SECRET not in str(caught.value)


def test_damaged_lines_are_refused_or_read_and_nothing_else() -> None:
    """Recorded lines with a few bytes changed, cut off, or moved."""
    rng = np.random.default_rng(6)
    names = ("a-baseline-reseed", "teacher-forced-int4")
    lines = [
        line
        for name in names
        for line in gzip.decompress((FIXTURES / f"{name}.jsonl.gz").read_bytes()).splitlines()[:10]
    ]
    reader, refused = ScoreReader(), 0
    for _ in range(600):
        line = bytearray(lines[rng.integers(len(lines))])
        for place in rng.integers(len(line), size=rng.integers(1, 4)):
            line[place] = rng.choice(list(b'0123456789{}[]",:-enull \xff'))
        if rng.random() < 0.2:
            del line[rng.integers(len(line)) :]
        try:
            found = reader.read(bytes(line))
            align(found, found)
        except LineProblemError:
            refused += 1

    assert 100 < refused < 600


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("vllm-0.32.0-chat-top20.json", None),
        ("vllm-0.32.0-completions-one-token.json", 1),
    ],
)
def test_recorded_answers_of_an_engine_are_read(name: str, tokens: int | None) -> None:
    path = Path(__file__).parents[2] / "fixtures" / "answers" / name
    body = json.loads(path.read_text(encoding="utf-8"))
    found = written(to_line({"request": {"prompt": "x"}, "response": body.get("body", body)}))

    assert len(found) == (tokens or len(found)) > 0
    assert (found.logprobs < 0).all()
