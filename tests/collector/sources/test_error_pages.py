"""What an answer that is no page says: the first line of an error page, and who is overloaded."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.collector.sources.servers import a_source, serving, silence, text

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as made:
        yield made


@pytest.mark.parametrize(
    ("page", "kind", "said"),
    [
        (b"\n FileNotFoundError: no such directory: prom\nmore\n", "text/plain; charset=utf-8",
         "it said 'FileNotFoundError: no such directory: prom'"),
        (b"x" * 5_000, "text/plain", f"it said '{'x' * 120}'"),
        (b"bell \x07 and \xff", "text/plain", "it said 'bell ? and \ufffd'"),
    ],
)  # fmt: skip
async def test_an_error_page_in_plain_text_says_its_first_line(
    client: httpx2.AsyncClient, page: bytes, kind: str, said: str
) -> None:
    head = f"Content-Type: {kind}\r\n"
    async with serving(text(page, status="500 Internal Server Error", headers=head)) as server:
        reading = await a_source(server.url, client).read()

    assert reading.problem.startswith("answered 500 Internal Server Error: expected 200")
    assert reading.problem.endswith(said)
    assert reading.overloaded


@pytest.mark.parametrize("kind", ["text/html", "application/json", ""])
async def test_an_error_page_of_another_form_is_not_quoted(
    client: httpx2.AsyncClient, kind: str
) -> None:
    head = f"Content-Type: {kind}\r\n" if kind else ""
    page = b"<h1>some words of somebody</h1>"
    async with serving(text(page, status="503 Unavailable", headers=head)) as server:
        reading = await a_source(server.url, client).read()

    assert "somebody" not in reading.problem
    assert reading.overloaded


async def test_a_timeout_is_a_sign_of_overload_and_a_wrong_path_is_not(
    client: httpx2.AsyncClient,
) -> None:
    async with serving(silence) as server:
        late = await a_source(server.url, client, timeout_seconds=0.05).read()
    async with serving(text(b"", status="404 Not Found")) as server:
        wrong = await a_source(server.url, client).read()

    assert (late.up, late.overloaded) == (False, True)
    assert (wrong.up, wrong.overloaded) == (False, False)
