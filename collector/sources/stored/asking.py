"""Asks a server that speaks Prometheus' query API, within bounds; its refusals are put in words.

Prometheus, Thanos, Mimir and VictoriaMetrics answer alike: JSON with `status`, `data` and, each in
its own way, word of what is missing (`warnings`, `isPartial`).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from typing import Final

import httpx2
import msgspec

from collector.sources.fetch import FetchError, FetchLimits, Outcome

MAX_WARNINGS: Final = 8
MAX_WORDS: Final = 200  # letters of a server's message that are passed on
LARGE_BYTES: Final = 98_304  # about 1 ms of decoding
_GZIP: Final = 16 + zlib.MAX_WBITS
_HINTS: Final[Mapping[int, str]] = {
    400: "it cannot read the query",
    401: "it wants credentials or a tenant; set bearer_token_file, basic_auth_file or tenant",
    403: "it refuses these credentials, or this tenant, for queries",
    404: "no query API there; url is the address before /api/v1 (for Mimir it ends in /prometheus)",
    405: "no query API there; url is the address before /api/v1",
    422: "it could not evaluate the query",
    429: "it is refusing queries for overload, or beyond a limit of the tenant",
    503: "it timed out or is not ready",
}


class StoredSeries(msgspec.Struct, frozen=True):
    """One series of an answer: all its labels, and (moment, value) if it has a plain value."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None  # a native histogram has none


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: list[StoredSeries] = []  # msgspec copies an empty default


class _Body(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None
    is_partial: bool | None = None


class Answer(msgspec.Struct, frozen=True):
    """What a server answered to one query; `lacking` are its own words for what is missing."""

    series: tuple[StoredSeries, ...]
    lacking: tuple[str, ...] = ()

    @property
    def moment(self) -> float | None:
        """When it was evaluated, in the server's unix time; None if nothing was found."""
        return next((it.value[0] for it in self.series if it.value), None)


async def ask(
    client: httpx2.AsyncClient,
    url: str,
    *,
    form: Mapping[str, str],
    headers: Mapping[str, str],
    limits: FetchLimits,
) -> Answer:
    """Send one instant query; no redirects are followed.

    Args:
        client: The client to use.
        url: Of the query API, `…/api/v1/query`.
        form: The fields to post, `query` among them.
        headers: Credentials and the like.
        limits: Bounds of time and size.

    Raises:
        FetchError: If there is no usable answer, for whatever cause.
    """
    sent = {"Accept": "application/json", "Accept-Encoding": "gzip", **headers}
    try:
        async with (
            asyncio.timeout(limits.timeout_seconds),
            client.stream(
                "POST",
                url,
                data=form,
                headers=sent,
                follow_redirects=False,
                timeout=limits.timeout_seconds,
            ) as response,
        ):
            body = await _body(response, limits.max_bytes)
            return await _understood(response, body)
    except (TimeoutError, httpx2.TimeoutException) as error:
        text = f"no whole answer within {limits.timeout_seconds:g} s"
        raise FetchError(Outcome.TIMEOUT, text) from error
    except httpx2.ConnectError as error:
        raise FetchError(Outcome.CONNECTION, f"cannot connect: {_said(error)}") from error
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        raise FetchError(Outcome.URL, f"its url cannot be used: {_said(error)}") from error
    except httpx2.HTTPError as error:
        text = f"the connection broke before an answer came: {_said(error)}"
        raise FetchError(Outcome.CONNECTION, text) from error
    except (ValueError, LookupError) as error:  # of the client, over a head that it cannot take
        text = f"the head of the answer cannot be read: {_said(error)}"
        raise FetchError(Outcome.CONNECTION, text) from error


def decode(body: bytes) -> Answer:
    """Read a body of the query API.

    Raises:
        FetchError: If it is something else, or says that the query failed.
    """
    try:
        found = msgspec.json.decode(body, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _not_the_api(body) from error
    if found.status != "success" or found.data is None:
        raise FetchError(Outcome.STATUS, f"the query failed: {_failure(found)}")
    if found.data.result_type != "vector":
        text = f"answered a {found.data.result_type[:40]!r}, expected a vector"
        raise FetchError(Outcome.NOT_METRICS, text)
    lacking = [short(it) for it in (found.warnings or ())[:MAX_WARNINGS]]
    if found.is_partial and not lacking:
        lacking = ["isPartial: some of its storage did not answer"]
    return Answer(tuple(found.data.result), tuple(lacking))


def short(text: str) -> str:
    """Return a server's words on one line and bounded."""
    return " ".join(text.split())[:MAX_WORDS]


async def _body(response: httpx2.Response, max_bytes: int) -> bytes:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in {"", "identity", "gzip", "x-gzip"}:
        text = f"answered in encoding {encoding[:40]!r}; only gzip was offered"
        raise FetchError(Outcome.ENCODING, text)
    unzip = zlib.decompressobj(wbits=_GZIP) if "gzip" in encoding else None
    chunks: list[bytes] = []
    left = max_bytes
    async for chunk in response.aiter_raw():
        data = chunk
        if unzip is not None:
            try:
                data = unzip.decompress(chunk, left + 1)
            except zlib.error as error:
                raise FetchError(Outcome.GZIP, f"the answer is broken gzip: {error}") from error
        left -= len(data)
        if left < 0:
            text = f"the answer is larger than {max_bytes:,} bytes; narrow match, or lower batch"
            raise FetchError(Outcome.TOO_LARGE, text)
        chunks.append(data)
    return b"".join(chunks)


async def _understood(response: httpx2.Response, body: bytes) -> Answer:
    status = response.status_code
    if response.is_redirect:
        place = response.headers.get("location", "").partition("?")[0][:MAX_WORDS]
        text = f"answered {status}, a redirect to {place!r}; redirects are not followed, set url"
        raise FetchError(Outcome.REDIRECT, text)
    if status == httpx2.codes.OK:
        if len(body) > LARGE_BYTES:
            return await asyncio.to_thread(decode, body)
        return decode(body)
    hint = _HINTS.get(status, "expected 200 with an answer")
    words = _words_of(body)
    text = f"answered {status} {response.reason_phrase}: {hint}{f' ({words})' if words else ''}"
    raise FetchError(Outcome.STATUS, text)


def _words_of(body: bytes) -> str:
    """Return what an error's body says, if it is the API's own JSON or one plain line."""
    try:
        return _failure(msgspec.json.decode(body, type=_Body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = body[: 2 * MAX_WORDS].decode("utf-8", "replace").strip()
        return "" if text.startswith(("<", "{")) else short(text)


def _failure(body: _Body) -> str:
    return short(f"{body.error_type}: {body.error}".strip(": ")) or "it does not say why"


def _not_the_api(body: bytes) -> FetchError:
    start = body[:512].lstrip()[:1]
    if start == b"<":
        text = "answered HTML, not an answer of the API; check url, or the proxy that wants a login"
        return FetchError(Outcome.HTML, text)
    if start in {b"{", b"["}:
        return FetchError(Outcome.JSON, "answered JSON of another form than the query API's")
    return FetchError(Outcome.NOT_METRICS, "answered something that is not JSON; check url")


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:MAX_WORDS]
