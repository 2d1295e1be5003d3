"""Every shape that tells tokens and logprobs is read; what is no such line is refused, unquoted."""

from __future__ import annotations

import gzip
import json
import lzma
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


def test_an_answer_of_the_responses_api_is_read() -> None:
    top = [{"token": "a", "logprob": -1.0}, {"token": "b", "logprob": -2.0}]
    part = {"text": "a", "logprobs": [{"token": "a", "logprob": -1.0, "top_logprobs": top}]}
    response = {"status": "completed", "output": [{"content": [part]}, {"content": None}]}
    found = read(to_line({"request": {"input": "Say"}, "response": response}))

    assert found.stopped
    assert found.generated is not None
    assert list(found.generated.labels) == ["a"]
    assert dict(found.generated.tops[0]) == {"a": -1.0}


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


def recorded(version: str) -> dict[str, Scored]:
    """Return what is read of the recorded bodies of an engine, by name."""
    folder = FIXTURES.parent / "generations"
    found: dict[str, Scored] = {}
    refused: list[Refusal] = []
    for line in lzma.decompress((folder / f"vllm-{version}.jsonl.xz").read_bytes()).splitlines():
        body = json.loads(line)
        members = {"request": body["request"], "response": body["body"], "status": body["status"]}
        try:
            found[body["name"].removeprefix(f"{version}-")] = read(to_line(members))
        except LineProblemError as error:
            refused.append(error.reason)
    assert set(refused) <= {Refusal.ENGINE_ERROR, Refusal.NO_LOGPROBS}
    return found


@pytest.mark.parametrize("version", ["0.8.5.post2", "0.9.2.post2", "0.32.0"])
def test_recorded_bodies_of_every_version_tell_the_same_prompt_in_every_form(version: str) -> None:
    found = recorded(version)
    echoed = found["completions-echo-score-only"].prompt
    assert echoed is not None
    assert len(echoed) == 16

    for name in ("completions-prompt-logprobs0", "completions-prompt-logprobs3"):
        mapped = found[name].prompt
        assert mapped is not None
        assert list(mapped.labels[1:]) == list(echoed.labels[1:])
        np.testing.assert_allclose(mapped.logprobs[1:], echoed.logprobs[1:], atol=1e-4)
    assert len(found) > 30


def test_versions_that_spell_tokens_otherwise_are_compared() -> None:
    """Version 0.9 writes the vocabulary's own spelling; model and logprobs are the same."""
    older, newer = (recorded(version) for version in ("0.8.5.post2", "0.9.2.post2"))

    for name in ("completions-logprobs20", "completions-echo-score-only", "chat-logprobs-top20"):
        found = align(older[name], newer[name])
        assert found.misfit is None
        assert found.tokens is not None
        np.testing.assert_allclose(found.tokens.q, found.tokens.p, atol=1e-3)
        if found.tokens.listed.any():
            assert not np.isnan(found.tokens.p_common).all(axis=1).any()


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        (["Ġthe", "Ċ", "Ã©", "<s>"], [" the", "\n", "é", "<s>"]),
        (["Ġthe", "€"], [" the", "€"]),
        (["▁the", "re"], [" the", "re"]),
        ([" the", "Ġ"], [" the", "Ġ"]),
        (["re", "Ã©"], ["re", "Ã©"]),
    ],
)
def test_a_vocabulary_s_own_spelling_becomes_text(labels: list[str], texts: list[str]) -> None:
    assert list(prompt_of(scored(labels, [-1.0] * len(labels))).labels) == texts


def test_a_recorded_stream_tells_what_the_whole_answer_told() -> None:
    found = recorded("0.32.0")
    whole, streamed = (
        found[name].generated
        for name in ("completions-logprobs20", "completions-stream-logprobs20-usage")
    )

    assert whole is not None
    assert streamed is not None
    assert list(streamed.labels) == list(whole.labels[: len(streamed)])
    np.testing.assert_allclose(streamed.logprobs, whole.logprobs[: len(streamed)], atol=1e-4)
    assert (whole.k, streamed.k) == (20, 20)


def test_tokens_without_a_name_are_refused() -> None:
    with pytest.raises(LineProblemError, match="not named"):
        read(chat([("a", -1, {})]).replace(b'"token": "a", ', b""))


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
