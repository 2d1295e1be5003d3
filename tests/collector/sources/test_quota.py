"""A provider's quota, by its headers or its JSON, becomes the share that is used."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from collector.sources.neighbours.quota import SIGNAL, QuotaConfig
from collector.sources.neighbours.quota_headers import quotas_of, reset_seconds
from detectors.records import Absence
from tests.collector.sources.neighbours import (
    at,
    built,
    check_contract,
    codes,
    json_answer,
    read_once,
)
from tests.collector.sources.servers import NOW, serving, silence, text

OPENAI = (
    "x-ratelimit-limit-requests: 5000\r\nx-ratelimit-remaining-requests: 4990\r\n"
    "x-ratelimit-reset-requests: 120ms\r\nx-ratelimit-limit-tokens: 160000\r\n"
    "x-ratelimit-remaining-tokens: 40000\r\nx-ratelimit-reset-tokens: 6m0s\r\n"
)
ANTHROPIC = (
    "anthropic-ratelimit-requests-limit: 1000\r\nanthropic-ratelimit-requests-remaining: 900\r\n"
    "anthropic-ratelimit-requests-reset: 2026-11-29T12:00:30Z\r\n"
    "anthropic-ratelimit-input-tokens-limit: 400000\r\n"
    "anthropic-ratelimit-input-tokens-remaining: 0\r\n"
    "anthropic-ratelimit-input-tokens-reset: 2026-11-29T12:01:00Z\r\n"
)
AZURE = "x-ratelimit-remaining-requests: 90\r\nx-ratelimit-remaining-tokens: 30000\r\n"
DRAFT = "RateLimit-Limit: 100, 100;w=60\r\nRateLimit-Remaining: 25\r\nRateLimit-Reset: 17\r\n"


def config(url: str, **settings: object) -> QuotaConfig:
    return QuotaConfig.model_validate({"url": f"{url}/v1/models", **settings})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "ratio"), [(OPENAI, 0.75), (ANTHROPIC, 1.0), (DRAFT, 0.75)], ids=["o", "a", "d"]
)
async def test_the_fullest_quota_of_the_headers_counts(headers: str, ratio: float) -> None:
    async with at(json_answer(b"{}", headers=headers)) as url:
        reading = await read_once(config(url))

    check_contract(reading, {SIGNAL})
    assert reading.values[SIGNAL] == pytest.approx(ratio)


@pytest.mark.anyio
async def test_a_used_up_quota_says_which_and_when_it_is_back() -> None:
    async with at(json_answer(b"{}", headers=ANTHROPIC)) as url:
        reading = await read_once(config(url))

    (finding,) = reading.findings
    assert finding.code == "quota_exhausted"
    assert "input-tokens is used up, and is back in 60 s" in finding.text


@pytest.mark.anyio
async def test_what_only_tells_the_rest_needs_the_limit_from_the_configuration() -> None:
    async with at(json_answer(b"{}", headers=AZURE)) as url:
        unknown = await read_once(config(url))
        known = await read_once(config(url, limits={"requests": 100, "tokens": 120_000}))

    assert unknown.absent[SIGNAL] is Absence.UNUSABLE
    assert codes(unknown) == {"quota_limit_unknown"}
    assert known.values[SIGNAL] == pytest.approx(0.75)


@pytest.mark.anyio
async def test_a_refusal_with_headers_is_an_answer_and_one_without_is_down() -> None:
    full = OPENAI.replace("remaining-requests: 4990", "remaining-requests: 0")
    status = "429 Too Many Requests"
    async with (
        at(json_answer(b"{}", status=status, headers=full)) as told,
        at(json_answer(b"{}", status=status)) as silent,
        at(json_answer(b"{}")) as without,
    ):
        first = await read_once(config(told))
        second = await read_once(config(silent))
        third = await read_once(config(without))

    assert first.values[SIGNAL] == 1.0
    assert not second.up
    assert "used up" in second.problem
    assert third.up
    assert third.absent[SIGNAL] is Absence.NO_FAMILY


@pytest.mark.anyio
async def test_a_usage_endpoint_is_read_by_pointers() -> None:
    body = {"data": [{"usage": {"tokens": 600, "requests/day": "30"}}], "left": 970}
    usage = [
        {"name": "tokens", "used": "/data/0/usage/tokens", "limit": 1000},
        {"name": "day", "used": "/data/0/usage/requests~1day", "remaining": "/left"},
    ]
    async with at(json_answer(json.dumps(body).encode())) as url:
        reading = await read_once(config(url, usage=usage))

    assert reading.values[SIGNAL] == pytest.approx(0.6)


@pytest.mark.anyio
@pytest.mark.parametrize("body", [b"{}", b'{"a": true}', b'{"a": [1]}', b'{"a": 1e999}', b"7"])
async def test_json_without_the_number_is_unknown(body: bytes) -> None:
    async with at(json_answer(body)) as url:
        reading = await read_once(config(url, usage=[{"used": "/a", "limit": 10}]))

    assert reading.up
    assert reading.absent[SIGNAL] is Absence.UNUSABLE


@pytest.mark.anyio
async def test_the_key_is_sent_as_the_provider_wants_it_and_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first\n")
    async with serving(json_answer(b"{}", headers=OPENAI)) as server:
        async with built(config(server.url, token_file=str(file))) as source:
            await source.read()
            file.write_text("second\n")
            await source.read()
        await read_once(config(server.url, token="k", token_header="api-key", method="HEAD"))

    assert b"authorization: Bearer first" in server.requests[0]
    assert b"authorization: Bearer second" in server.requests[1]
    assert b"api-key: k" in server.requests[2]
    assert server.requests[2].startswith(b"HEAD /v1/models ")


@pytest.mark.anyio
async def test_what_goes_wrong_is_said_and_never_shows_the_key(tmp_path: Path) -> None:
    async with at(text(b"<html>")) as url, at(json_answer(b"{}", status="401 No")) as closed:
        html = await read_once(config(url, usage=[{"used": "/a", "limit": 1}], token="hidden"))
        refused = await read_once(config(closed, token="hidden"))
        missing = await read_once(config(closed, token_file=str(tmp_path / "none")))

    problems = [html.problem, refused.problem, missing.problem]
    assert ["JSON" in problems[0], "token" in problems[1], "secret file" in problems[2]] == [
        True
    ] * 3
    assert not any("hidden" in problem for problem in problems)
    check_contract(missing, {SIGNAL})


@pytest.mark.anyio
async def test_a_provider_that_says_nothing_is_down_in_time() -> None:
    async with at(silence) as url, built(config(url), within=0.05) as source:
        reading = await source.read()

    assert "0.05 s" in reading.problem
    assert source.stats().outcomes == {"timeout": 1}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("6m0s", 360.0),
        ("1s", 1.0),
        ("120ms", 0.12),
        ("1h2m3.5s", 3723.5),
        ("1d", 86_400.0),
        ("17", 17.0),
        (str(int(NOW.timestamp()) + 9), 9.0),
        ("2026-11-29T12:00:30Z", 30.0),
        ("2026-11-29T11:00:00Z", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_resets_are_read_in_every_form(written: str, seconds: float | None) -> None:
    assert reset_seconds(written, NOW) == (None if seconds is None else pytest.approx(seconds))


@given(st.integers(0, 10**7), st.integers(1, 10**7), st.integers(0, 86_400))
def test_the_ratio_is_a_ratio_whatever_is_told(remaining: int, limit: int, reset: int) -> None:
    headers = {
        "x-ratelimit-limit-tokens": str(limit),
        "x-ratelimit-remaining-tokens": str(remaining),
        "x-ratelimit-reset-tokens": (NOW + timedelta(seconds=reset)).isoformat(),
    }

    (quota,) = quotas_of(headers, NOW)

    assert quota.used_ratio is not None
    assert 0.0 <= quota.used_ratio <= 1.0
    assert quota.reset_seconds is not None


@given(st.dictionaries(st.text(), st.text(), max_size=8))
def test_any_headers_are_survived(headers: dict[str, str]) -> None:
    named = {f"x-ratelimit-limit-{name}"[:60]: value for name, value in headers.items()}

    quotas_of({**headers, **named}, NOW)


@pytest.mark.parametrize(
    "settings",
    [
        {"usage": [{"used": "a", "limit": 1}]},
        {"usage": [{"used": "/a"}]},
        {"usage": [{"used": "/a", "limit": 1}], "method": "HEAD"},
        {"token": "a", "token_file": "b"},
        {"usage": [{"used": "/a", "limit": -1}]},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        config("http://127.0.0.1:1", **settings)


@pytest.mark.anyio
@pytest.mark.parametrize("secret", ["", "two\nlines", "bell\x07", "n\u00e9", "x" * 5000])
async def test_a_secret_that_is_no_header_fails_the_read_and_is_not_repeated(
    secret: str, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(secret)
    async with serving(json_answer(b"{}")) as server:
        reading = await read_once(config(server.url, token_file=str(file)))
        stated = await read_once(config(server.url, token=secret or " \x00"))

    assert "printable" in reading.problem
    assert "printable" in stated.problem
    assert not secret or secret not in reading.problem
    assert server.requests == []


@pytest.mark.parametrize("key", ["token", "token_file"])
def test_a_key_is_not_sent_unencrypted_to_another_machine_unless_told_so(key: str) -> None:
    url = "http://10.0.0.7/usage"

    with pytest.raises(ValidationError, match="insecure_http: true"):
        QuotaConfig.model_validate({"url": url, key: "k"})

    told = QuotaConfig.model_validate({"url": url, key: "k", "insecure_http": True})
    here = QuotaConfig.model_validate({"url": "http://127.0.0.1/usage", key: "k"})
    assert (told.insecure_http, here.insecure_http) == (True, False)
