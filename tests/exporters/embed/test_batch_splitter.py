"""The batch splitter: nothing lost, nothing doubled, in order, within what the tier tells."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.embed import batch_splitter
from exporters.embed.batch_splitter import Limits, LimitsReader, split

FILE = Path(batch_splitter.__file__)
OPTIONAL = st.none() | st.integers(1, 300)
ALONE = """
import runpy, sys
module = runpy.run_path(sys.argv[1])
print([batch.items for batch in module["split"]([3, 4, 5], tokens=int, max_tokens=7)])
"""


@given(
    st.lists(st.integers(0, 200), max_size=60),
    st.integers(1, 9),
    OPTIONAL,
    st.builds(
        Limits,
        max_prompt_tokens=OPTIONAL,
        batch_token_budget=OPTIONAL,
        in_flight_requests=st.none() | st.integers(0, 9),
    ),
)
def test_nothing_is_lost_doubled_or_moved_and_no_batch_is_over_a_limit(
    items: list[int], requests: int, tokens: int | None, limits: Limits
) -> None:
    numbered = list(enumerate(items))

    batches = list(
        split(
            numbered,
            tokens=lambda item: item[1],
            limits=lambda: limits,
            max_requests=requests,
            max_tokens=tokens,
        )
    )

    budget = min(it for it in (tokens, limits.batch_token_budget, 10**9) if it is not None)
    longest = limits.max_prompt_tokens or 10**9
    flying = requests if limits.in_flight_requests is None else limits.in_flight_requests
    assert [item for batch in batches for item in batch.items] == numbered
    for batch in batches:
        sizes = [item[1] for item in batch.items]
        assert batch.tokens == sum(sizes)
        if batch.oversized:
            assert len(sizes) == 1
            assert sizes[0] > min(budget, longest)
        else:
            assert 1 <= len(sizes) <= max(min(requests, flying), 1)
            assert batch.tokens <= budget
            assert max(sizes) <= longest


def test_the_tier_is_asked_before_each_batch_and_items_are_drawn_as_they_are_sent() -> None:
    told = iter([Limits(batch_token_budget=10), Limits(batch_token_budget=20), Limits()])
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for number in range(8):
            drawn.append(number)
            yield 5

    batches = split(items(), tokens=int, limits=lambda: next(told, Limits()))
    first = next(batches)
    after_first = len(drawn)
    rest = [batch.tokens for batch in batches]

    assert (first.tokens, after_first) == (10, 3)
    assert rest == [20, 10]


class Asked:
    """What the server was asked, and what it answers next."""

    def __init__(self) -> None:
        self.paths: list[tuple[str, str]] = []
        self.answer: bytes = json.dumps(
            {"admit_ratio": 0.5, "max_prompt_tokens": 4096, "request_slots": 7, "unknown": {}}
        ).encode()
        self.status = 200
        self.url = ""
        self.location = ""


@contextmanager
def a_server() -> Iterator[Asked]:
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.paths.append((self.path, self.headers.get("authorization", "")))
            self.send_response(asked.status)
            self.send_header("Content-Length", str(len(asked.answer)))
            if asked.location:
                self.send_header("Location", asked.location)
            self.end_headers()
            self.wfile.write(asked.answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its own name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    asked.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_limits_are_asked_once_a_while_and_kept_through_a_short_silence() -> None:
    at = 0.0
    with a_server() as asked:
        reader = LimitsReader(
            asked.url, "chat / a", token="t", refresh_seconds=10, monotonic=lambda: at
        )
        first = [reader.newest(), reader.newest()]
        asked.status, at = 503, 11.0
        silent = reader.newest()
        at = 75.0
        forgotten = reader.newest()

    assert first == [Limits(admit_ratio=0.5, max_prompt_tokens=4096)] * 2
    assert asked.paths == [("/v1/limits/chat%20%2F%20a", "Bearer t")] * 3
    assert silent == first[0]
    assert forgotten == Limits() == reader.known


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b'{"admit_ratio": "all"}', b'{"admit_ratio": NaN}', b"1" * 99_999]
)
def test_an_answer_that_is_no_limits_leaves_them_unknown(answer: bytes) -> None:
    with a_server() as asked:
        asked.answer = answer
        reader = LimitsReader(asked.url, "chat")

        assert reader.newest() == Limits()


def test_a_redirect_is_not_followed_and_the_token_stays_here() -> None:
    with a_server() as elsewhere, a_server() as asked:
        asked.status, asked.location = 302, f"{elsewhere.url}/"
        known = LimitsReader(asked.url, "chat", token="t").newest()

    assert known == Limits()
    assert (len(asked.paths), elsewhere.paths) == (1, [])


def test_an_address_that_is_no_url_is_refused() -> None:
    with pytest.raises(ValueError, match="http"):
        LimitsReader("file:///etc/passwd", "chat")


def test_it_runs_alone_without_any_package_and_speaks_python_3_9(tmp_path: Path) -> None:
    ast.parse(FILE.read_text(), feature_version=(3, 9))

    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, str(FILE)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )

    assert (ran.stdout.strip(), ran.stderr) == ("[[3, 4], [5]]", "")
