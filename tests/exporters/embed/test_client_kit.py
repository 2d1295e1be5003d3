"""The client kit: what it tries again, when, and how often."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.embed.client_kit import (
    Outcome,
    Refusal,
    Retries,
    backoff_seconds,
    refusal_of,
    retry_after_seconds,
)
from tests.exporters.embed.kit_bench import NOW, Answer, Bench, saying


def test_a_refusal_is_tried_again_after_what_it_told_and_a_jitter() -> None:
    bench = Bench()

    got = bench.kit.call(saying(Answer(429, {"retry-after": "7"}), Answer(503), Answer(200)))

    assert got == Answer(200)
    assert bench.slept == [7.5, 1.0]  # 7 told + 0.5 jitter; then 0.5 * 2
    assert bench.sample("openai_api_requests_total", status="429") == 1
    assert bench.sample("openai_api_requests_total", status="200") == 1
    assert bench.sample("openai_api_rate_limited_total") == 1
    assert bench.sample("openai_api_rate_limit_retries_total") == 2
    assert bench.sample("openai_api_queue_size") == 0


def test_a_429_holds_back_every_caller_of_the_kit() -> None:
    bench = Bench(Retries(attempts=1))

    bench.kit.call(saying(Answer(429, {"Retry-After": "5"})))
    bench.kit.call(saying(Answer(200)))

    assert bench.slept == [6.0]  # what is left of 5, and up to a second so that not all go at once


def test_what_is_given_up_comes_back_as_it_came() -> None:
    bench = Bench(Retries(attempts=3))
    gone = ConnectionError("reset")

    answer = bench.kit.call(saying(Answer(500)))
    with pytest.raises(ConnectionError) as raised:
        bench.kit.call(saying(gone))
    refused = bench.kit.call(saying(Answer(404)))

    assert answer == Answer(500)
    assert raised.value is gone
    assert refused == Answer(404)
    assert len(bench.slept) == 4
    assert bench.sample("openai_api_requests_total", status="404") == 1
    assert bench.sample("openai_api_requests_total", status="error") == 3


def test_retries_stay_within_the_budget_whatever_the_server_does() -> None:
    bench = Bench(Retries(budget_ratio=0.1, reserve=5.0))

    for _ in range(200):
        bench.kit.call(saying(Answer(500)))

    assert bench.sample("openai_api_rate_limit_retries_total") <= 5 + 0.1 * 200
    assert bench.sample("openai_api_rate_limit_retries_total") >= 20
    assert bench.sample("openai_api_retry_budget_spent_total") > 100


def test_a_wait_longer_than_patience_is_the_caller_s() -> None:
    bench = Bench()

    got = bench.kit.call(saying(Answer(429, {"retry-after": "3600"})))

    assert got.status_code == 429
    assert bench.slept == []


@given(st.integers(0, 200), st.floats(0.001, 60), st.floats(0.001, 600), st.floats(0, 1))
def test_backoff_is_never_negative_nor_over_its_ceiling(
    attempt: int, base: float, most: float, lot: float
) -> None:
    retries = Retries(base_seconds=base, most_seconds=most)

    wait = backoff_seconds(attempt, retries, lambda low, high: low + (high - low) * lot)

    assert 0.0 <= wait <= min(most, base * 2.0 ** min(attempt, 60)) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12", 12.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
        ("Sun, 29 Nov 2026 12:00:09 -0000", 9.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(text, NOW.timestamp()) == seconds


@given(st.text(max_size=40))
def test_no_retry_after_ends_a_call(text: str) -> None:
    seconds = retry_after_seconds(text, NOW.timestamp())

    assert seconds is None or seconds >= 0.0


class LibraryError(Exception):
    """An error that carries the answer, as those of many libraries do."""

    def __init__(self, response: object) -> None:
        super().__init__("refused")
        self.response = response


@pytest.mark.parametrize(
    ("met", "refusal"),
    [
        (httpx2.Response(429, headers={"Retry-After": "2"}), Refusal(429, 2.0)),
        (httpx2.Response(200), None),
        (LibraryError(httpx2.Response(503, headers={"retry-after": "x"})), Refusal(503, None)),
        (LibraryError(httpx2.Response(400)), None),
        (TimeoutError(), Refusal(0)),
        (ConnectionResetError(), Refusal(0)),
        (ValueError("mine"), None),
        ({"status": 429}, None),
        (Answer(529), Refusal(529)),
        (None, None),
    ],
)
def test_what_may_be_tried_again_is_seen_in_any_library(
    met: object, refusal: Refusal | None
) -> None:
    outcome = Outcome(None, error=met) if isinstance(met, Exception) else Outcome(None, value=met)

    assert refusal_of(outcome, NOW.timestamp()) == refusal


@contextmanager
def a_server(statuses: list[int]) -> Iterator[str]:
    """Run a server that answers each request with the next status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = statuses.pop(0)
            self.send_response(status)
            if status != 200:
                self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its own name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_real_server_that_refuses_twice_is_asked_three_times() -> None:
    statuses = [429, 503, 200]
    bench = Bench()

    def ask(url: str) -> int:
        with urllib.request.urlopen(url, timeout=5) as answer:
            status: int = answer.status
            return status

    with a_server(statuses) as url:
        status = bench.kit.call(ask, url)

    assert (status, statuses) == (200, [])
    assert bench.sample("openai_api_requests_total", status="429") == 1


def test_a_real_refusal_that_is_given_up_is_the_library_s_own_error() -> None:
    bench = Bench(Retries(attempts=1))
    with a_server([429]) as url, pytest.raises(urllib.error.HTTPError) as raised:
        bench.kit.call(urllib.request.urlopen, url)

    raised.value.close()
    assert raised.value.code == 429


@pytest.mark.parametrize("library", [httpx2.get, urllib.request.urlopen])
def test_a_server_that_is_not_there_is_tried_again_whatever_the_library(
    library: Callable[[str], object],
) -> None:
    bench = Bench()
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]

    with pytest.raises((httpx2.ConnectError, urllib.error.URLError)):
        bench.kit.call(library, f"http://127.0.0.1:{port}")

    assert bench.sample("openai_api_requests_total", status="error") == Retries().attempts


def test_a_server_that_hangs_up_or_says_nothing_is_tried_again() -> None:
    errors: list[Exception] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        try:
            httpx2.get(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
        except httpx2.HTTPError as error:
            errors.append(error)
    errors.append(httpx2.RemoteProtocolError("the server hung up"))

    seen = [refusal_of(Outcome(None, error=it), NOW.timestamp()) for it in errors]

    assert seen == [Refusal(0), Refusal(0)]
