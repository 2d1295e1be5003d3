"""Asks a server for one JSON answer within bounds of time and size."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import httpx2
import msgspec

from collector.sources.fetch import FetchError

MAX_BYTES: Final = 4_194_304  # a vLLM with developer routes tells 18 kB of itself
LARGE_BYTES: Final = 98_304  # about 1 ms of decoding
_METRICS_PATHS: Final = ("/prometheus/metrics", "/metrics")
_OK: Final = range(200, 300)
_SERVER_TROUBLE: Final = 500


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one question.

    `status` is 0 where no whole answer came; `body` is the decoded JSON of an answer, None where
    there is none; `problem` says in words why there is no usable body, empty if there is one. What
    a server wrote is never part of it: it may hold text of users. `unasked` marks a question that
    could not even be put, for an address or credentials that cannot be used.
    """

    status: int = 0
    body: object = None
    problem: str = ""
    unasked: bool = False

    @property
    def usable(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class Asking:
    """Everything that the questions to one server have in common; `base` has no path of a page."""

    client: httpx2.AsyncClient
    base: str
    headers: Mapping[str, str]
    timeout_seconds: float
    max_bytes: int = MAX_BYTES

    async def ask(self, path: str, body: object = None) -> Answer:
        """Get `path`, or post `body` to it as JSON; whatever goes wrong is in the answer."""
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await self._ask(path, body)
        except (TimeoutError, httpx2.TimeoutException):
            return Answer(problem=f"no whole answer within {self.timeout_seconds:g} s")
        except httpx2.UnsupportedProtocol:
            return Answer(problem="cannot be asked: expected http:// or https://", unasked=True)
        except httpx2.HTTPError as error:
            return Answer(problem=f"the connection broke: {type(error).__name__}")
        except FetchError as error:  # of headers that are kept in files
            return Answer(problem=str(error), unasked=True)
        except (httpx2.InvalidURL, ValueError, LookupError) as error:
            # of the client, over an address or a head that it cannot take
            return Answer(problem=f"cannot be asked: {type(error).__name__}", unasked=True)

    async def _ask(self, path: str, body: object) -> Answer:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **self.headers}
        content = None
        if body is not None:
            content = msgspec.json.encode(body)
            headers["Content-Type"] = "application/json"
        async with self.client.stream(
            "GET" if body is None else "POST",
            self.base + path,
            content=content,
            headers=headers,
            follow_redirects=False,
            timeout=self.timeout_seconds,
        ) as response:
            status = response.status_code
            if status not in _OK:
                return Answer(status, problem=f"answered {status}")
            if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
                return Answer(status, problem="answered packed, which was not offered")
            return await self._received(response)

    async def _received(self, response: httpx2.Response) -> Answer:
        status, size, chunks = response.status_code, 0, []
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > self.max_bytes:
                problem = f"answered more than {self.max_bytes:,} bytes"
                return Answer(status, problem=problem)
            chunks.append(chunk)
        try:
            if size > LARGE_BYTES:
                body = await asyncio.to_thread(msgspec.json.decode, b"".join(chunks))
            else:
                body = msgspec.json.decode(b"".join(chunks))
            return Answer(status, body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return Answer(status, problem="answered something that is not JSON")


def failed_inside(answer: Answer) -> bool:
    """Say whether the server, and not the question, is at fault: silence, or a status of 5xx."""
    return not answer.unasked and (answer.status == 0 or answer.status >= _SERVER_TROUBLE)


def server_base(url: str) -> str:
    """Return the address of a server from that of its metrics page.

    >>> server_base("http://127.0.0.1:8000"), server_base("http://127.0.0.1:8000/metrics")
    ('http://127.0.0.1:8000', 'http://127.0.0.1:8000')
    >>> server_base("https://gateway.example/llm/a/metrics/")
    'https://gateway.example/llm/a'
    """
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    for ending in _METRICS_PATHS:
        if path.endswith(ending):
            path = path.removesuffix(ending)
            break
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def field_of(body: object, *path: str | int) -> object:
    """Return what lies at `path` in decoded JSON, None where there is nothing.

    >>> field_of({"data": [{"id": "tiny"}]}, "data", 0, "id")
    'tiny'
    >>> field_of({"data": "oops"}, "data", 0, "id") is None
    True
    """
    for step in path:
        if isinstance(body, dict) and isinstance(step, str):
            body = body.get(step)
        elif isinstance(body, list) and isinstance(step, int) and step < len(body):
            body = body[step]
        else:
            return None
    return body


def text_of(body: object, *path: str | int, longest: int = 512) -> str:
    """Return the text at `path`, empty where there is none or one of unreasonable length."""
    found = field_of(body, *path)
    return found.strip() if isinstance(found, str) and len(found) <= longest else ""


def count_of(body: object, *path: str | int, most: float = 1e12) -> float | None:
    """Return the whole number above 0 at `path`, None where there is none or none believable."""
    found = field_of(body, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if 1 <= found <= most and found == int(found) else None
