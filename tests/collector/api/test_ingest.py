"""Intake over HTTP: what is taken, what is refused, and what each refusal says."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import AsyncIterator

import pytest
import zstandard

from collector.gauges import show_parts
from collector.ingest.intake import Intake, IntakeBusy, IntakeError, Work, open_and_decode
from collector.ingest.records import Decoded, Defaults
from tests.collector.api.conftest import Asked
from tests.collector.ingest.exports import CHAT, spans

pytestmark = pytest.mark.anyio
PATH = "/v1/ingest/generations?tier=chat"
NDJSON = {"content-type": "application/x-ndjson"}
LINE = {
    "segment": "search",
    "request": {"model": "m", "prompt": "one two three"},
    "response": {
        "choices": [{"index": 0, "text": "four", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    },
}
BODY = json.dumps(LINE).encode() + b"\n"


@pytest.mark.slow
async def test_lines_are_counted_for_tier_and_segment_and_bad_ones_told_by_number(
    asked: Asked,
) -> None:
    answer = await asked.client.post(PATH, content=BODY + b"{broken\n" + BODY, headers=NDJSON)

    assert answer.status_code == 200
    told = answer.json()
    assert told["accepted"] == 2
    assert [row["line"] for row in told["rejected"]] == [2]
    scopes = {str(scope) for _, scope, _ in asked.service.parts.state.lanes}
    assert scopes == {"tier", "segment:search"}


@pytest.mark.slow
async def test_when_no_line_is_good_the_answer_is_422(asked: Asked) -> None:
    answer = await asked.client.post(PATH, content=b"{broken\n[1]\n", headers=NDJSON)

    assert answer.status_code == 422
    assert answer.json()["accepted"] == 0
    assert len(answer.json()["rejected"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(BODY * 3)),
        ("zstd", zstandard.compress(BODY * 3)),
        ("", json.dumps([LINE, LINE, LINE]).encode()),
    ],
    ids=["gzip", "zstd", "array"],
)
async def test_packed_bodies_and_arrays_are_read(
    asked: Asked, encoding: str, packed: bytes
) -> None:
    headers = {"content-type": "application/json"}
    if encoding:
        headers["content-encoding"] = encoding

    answer = await asked.client.post(PATH, content=packed, headers=headers)

    assert answer.status_code == 200, answer.text
    assert answer.json() == {"accepted": 3, "rejected": [], "partial": {"no_logprobs": 3}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", gzip.compress(b"0" * 2_000_000), 413),
        ("zstd", zstandard.compress(b"0" * 2_000_000), 413),
        ("gzip", b"not gzip at all", 400),
        ("br", b"anything", 415),
    ],
    ids=["gzip bomb", "zstd bomb", "not gzip", "unknown encoding"],
)
async def test_bombs_and_broken_packing_are_refused_whole(
    asked: Asked, encoding: str, body: bytes, status: int
) -> None:
    headers = NDJSON | {"content-encoding": encoding}

    answer = await asked.client.post(PATH, content=body, headers=headers)

    assert answer.status_code == status, answer.text
    page, _ = asked.service.parts.page.render()
    assert b"fusewire_generations_rejected_total{" in page


@pytest.mark.slow
async def test_an_empty_body_says_that_it_holds_no_line(asked: Asked) -> None:
    answer = await asked.client.post(PATH, content=b"\n", headers=NDJSON)

    assert answer.status_code == 422
    assert answer.json()["rejected"] == [{"line": 0, "reason": "no_lines: the body holds no line"}]


async def test_a_body_over_the_limit_is_refused_by_its_declared_length(asked: Asked) -> None:
    answer = await asked.client.post(PATH, content=b"x" * 1_000_001, headers=NDJSON)

    assert answer.status_code == 413
    assert "at most 1000000" in answer.json()["detail"]


async def test_a_body_over_the_limit_is_refused_while_it_comes(asked: Asked) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 50:
            sent += 1
            yield b"x" * 100_000

    answer = await asked.client.post(PATH, content=endless(), headers=NDJSON)

    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("path", "headers", "status", "expected"),
    [
        (PATH, {"content-type": "text/html"}, 415, "expected application/json"),
        (PATH, {"content-type": "application/x-www-form-urlencoded"}, 415, "with curl: -H"),
        ("/v1/ingest/generations?tier=nope", NDJSON, 404, "known: chat"),
    ],
)
async def test_a_wrong_content_type_or_tier_says_what_was_expected(
    asked: Asked, path: str, headers: dict[str, str], status: int, expected: str
) -> None:
    answer = await asked.client.post(path, content=BODY, headers=headers)

    assert answer.status_code == status
    assert expected in answer.json()["detail"]


class FullIntake(Intake):
    """An intake that has no room, or whose worker dies; only `submit` is asked of it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def waiting(self) -> int:
        return 17

    async def submit(
        self,
        body: bytes,
        defaults: Defaults,
        *,
        encoding: str = "",
        work: Work = open_and_decode,
    ) -> Decoded:
        raise self._error

    async def close(self) -> None:
        return


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [(IntakeBusy(2.2), 429, "3"), (IntakeError("the worker died"), 503, None)],
)
async def test_a_full_or_dying_intake_takes_nothing_and_says_so(
    asked: Asked, error: Exception, status: int, retry_after: str | None
) -> None:
    whole = asked.service.parts.intake
    asked.service.parts.intake = FullIntake(error)
    try:
        answer = await asked.client.post(PATH, content=BODY, headers=NDJSON)
    finally:
        asked.service.parts.intake = whole

    assert answer.status_code == status
    assert answer.headers.get("retry-after") == retry_after
    assert asked.service.parts.state.lanes == []


ID = "chatcmpl-6f1c9a0d41f24c1f"


def lines(*numbers: int, **members: object) -> bytes:
    return b"\n".join(json.dumps({"id": f"r-{one}", **members, **LINE}).encode() for one in numbers)


async def shown(asked: Asked) -> str:
    return (await asked.client.get("/metrics")).text


def counted(asked: Asked) -> int:
    return sum(
        tick.requests
        for tick in asked.service.parts.state.close_tick()
        if str(tick.scope) == "tier"
    )


@pytest.mark.slow
async def test_a_body_sent_again_after_a_lost_answer_counts_once(asked: Asked) -> None:
    first = await asked.client.post(PATH, content=lines(1, 2), headers=NDJSON)
    again = await asked.client.post(PATH, content=lines(1, 2), headers=NDJSON)
    more = await asked.client.post(PATH, content=lines(2, 3), headers=NDJSON)

    assert (first.json()["accepted"], again.json()["accepted"]) == (2, 2)
    assert again.status_code == 200
    assert again.json()["partial"]["duplicate"] == 2
    assert more.json()["partial"]["duplicate"] == 1
    assert counted(asked) == 3
    page = await shown(asked)
    assert 'fusewire_generations_accepted_total{segment="search",tier="chat"} 3.0' in page
    assert 'fusewire_generations_partial_total{reason="duplicate",source="http"} 3.0' in page


@pytest.mark.slow
async def test_a_body_that_was_refused_for_lack_of_room_counts_when_it_comes_again(
    asked: Asked,
) -> None:
    whole = asked.service.parts.intake
    asked.service.parts.intake = FullIntake(IntakeBusy(1.0))
    refused = await asked.client.post(PATH, content=lines(1, 2), headers=NDJSON)
    asked.service.parts.intake = whole

    taken = await asked.client.post(PATH, content=lines(1, 2), headers=NDJSON)

    assert (refused.status_code, taken.status_code) == (429, 200)
    assert "duplicate" not in taken.json().get("partial", {})
    assert counted(asked) == 2


@pytest.mark.slow
async def test_the_same_request_over_http_and_otlp_counts_once(asked: Asked) -> None:
    response = {**LINE["response"], "id": ID}  # type: ignore[dict-item]  # a mapping, see LINE
    body = json.dumps({**LINE, "response": response}).encode()
    export = spans({**CHAT, "gen_ai.response.id": ID})

    await asked.client.post(PATH, content=body, headers=NDJSON)
    answer = await asked.client.post(
        "/v1/otlp/chat/v1/traces",
        content=export,
        headers={"content-type": "application/x-protobuf"},
    )

    assert answer.status_code == 200
    assert counted(asked) == 1


@pytest.mark.slow
async def test_sampled_lines_stand_for_more_and_coverage_is_shown(asked: Asked) -> None:
    logprobs = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5}]}
    choice = {"index": 0, "text": "a", "finish_reason": "stop", "logprobs": logprobs}
    scored = {"request": {"prompt": "x", "logprobs": 1}, "response": {"choices": [choice]}}
    body = b"\n".join(
        [lines(1, sample_ratio=0.5), json.dumps({**scored, "sample_ratio": 0.1}).encode()]
    )

    answer = await asked.client.post(PATH, content=body, headers=NDJSON)
    show_parts(asked.service.parts)

    assert answer.json()["partial"]["mixed_sample_ratios"] == 1
    assert counted(asked) == 2  # evidence counts what was seen
    page = await shown(asked)
    assert 'fusewire_generations_represented_total{tier="chat"} 12.0' in page
    (share,) = re.findall(r'fusewire_logprob_coverage_ratio\{tier="chat"\} (\S+)', page)
    assert float(share) == pytest.approx(10 / 12)
