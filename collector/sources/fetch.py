"""Gets one page over HTTP within bounds of time and size; what goes wrong has words."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http.cookiejar import DefaultCookiePolicy
from typing import Final

import httpx2

ACCEPT: Final = "text/plain;version=0.0.4;q=1, */*;q=0.1"
MAX_BYTES: Final = 33_554_432
MAX_MEMBERS: Final = 64  # of a gzip body; servers write one, a compressing proxy one a flush
MAX_SAID: Final = 120  # characters of an error page that are shown
_ERROR_BYTES: Final = 1_024
_GZIP: Final = 16 + zlib.MAX_WBITS
_HINTS: Final[Mapping[int, str]] = {
    401: "it wants credentials for its metrics page",
    403: "it refuses its metrics page to this client",
    404: "no metrics page there; check the target's url, and whether metrics are switched on",
    429: "it is refusing requests for overload",
    503: "the server is up but says that its service is not",
}


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one scrape; `max_bytes` holds before and after decompression."""

    timeout_seconds: float = 10.0
    max_bytes: int = MAX_BYTES


@dataclass(frozen=True, slots=True)
class Fetched:
    """A body, decompressed; `cut` if the connection ended before it was whole."""

    body: bytes
    cut: bool = False


class Outcome(StrEnum):
    """What came of a scrape: a code for counting; only the first three give signals a chance."""

    READ = "read"
    CUT = "cut"
    NO_DATA = "no data"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    STATUS = "status"
    REDIRECT = "redirect"
    TOO_LARGE = "too large"
    GZIP = "gzip"
    ENCODING = "encoding"
    HTML = "html"
    JSON = "json"
    NOT_METRICS = "not metrics"
    UNUSABLE = "unusable"
    URL = "url"
    CREDENTIALS = "credentials"  # the file that holds them cannot be used


class FetchError(Exception):
    """A scrape that failed: `outcome` is for counting, the text for people.

    `overloaded` says that the server answered for want of strength (5xx, 429) or not in time.
    """

    def __init__(self, outcome: Outcome, text: str, *, overloaded: bool = False) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.overloaded = overloaded


@dataclass(slots=True)
class _Intake:
    """The body as it arrives."""

    max_bytes: int
    unzip: zlib._Decompress | None
    members: int = 1
    received: int = 0
    size: int = 0
    chunks: list[bytes] = field(default_factory=list)

    def take(self, chunk: bytes) -> None:
        self.received += len(chunk)
        if self.unzip is None:
            self._keep(chunk)
        else:
            self.unzip = self._unzip(chunk, self.unzip)
        if self.received > self.max_bytes:
            raise self._too_large()

    def body(self, *, cut: bool) -> Fetched:
        if self.unzip is not None and not self.unzip.eof and (self.received or cut):
            raise _broken_gzip(zlib.error("it ends early"))
        return Fetched(b"".join(self.chunks), cut=cut)

    def _unzip(self, data: bytes, unzip: zlib._Decompress) -> zlib._Decompress:
        """Keep what `data` unpacks to; members may follow one another. Returns the open one."""
        while data:
            if unzip.eof:
                self.members += 1
                if self.members > MAX_MEMBERS:
                    raise _broken_gzip(zlib.error(f"it has more than {MAX_MEMBERS} members"))
                unzip = zlib.decompressobj(wbits=_GZIP)
            try:
                self._keep(unzip.decompress(data, self.max_bytes - self.size + 1))
            except zlib.error as error:
                raise _broken_gzip(error) from error
            data = unzip.unused_data if unzip.eof else unzip.unconsumed_tail
        return unzip

    def _keep(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self.max_bytes:
            raise self._too_large()
        self.chunks.append(data)

    def _too_large(self) -> FetchError:
        text = f"the page is larger than {self.max_bytes:,} bytes; is this url an engine's metrics?"
        return FetchError(Outcome.TOO_LARGE, text)


def refuse_cookies(client: httpx2.AsyncClient) -> None:
    """Let a client keep no cookies: one that cannot be sent back would end every later scrape."""
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))


async def fetch(
    client: httpx2.AsyncClient, url: str, headers: Mapping[str, str], limits: FetchLimits
) -> Fetched:
    """Get the page at `url`: one request, no redirects.

    Raises:
        FetchError: If there is no page to read, for whatever cause on the way or at the target.
    """
    asked = {"Accept": ACCEPT, "Accept-Encoding": "gzip", **headers}
    try:
        async with (
            asyncio.timeout(limits.timeout_seconds),
            client.stream(
                "GET",
                url,
                headers=asked,
                follow_redirects=False,
                timeout=limits.timeout_seconds,
            ) as response,
        ):
            await _check(response)
            return await _receive(response, limits)
    except (TimeoutError, httpx2.TimeoutException) as error:
        text = f"no whole answer within {limits.timeout_seconds:g} s"
        raise FetchError(Outcome.TIMEOUT, text, overloaded=True) from error
    except httpx2.ConnectError as error:
        raise FetchError(Outcome.CONNECTION, f"cannot connect: {_said(error)}") from error
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        text = f"the url cannot be used: {_said(error)}; expected http:// or https://"
        raise FetchError(Outcome.URL, text) from error
    except httpx2.HTTPError as error:
        text = f"the connection broke before a page came: {_said(error)}"
        raise FetchError(Outcome.CONNECTION, text) from error
    except (ValueError, LookupError) as error:  # of the client, over a head that it cannot take
        text = f"the head of the answer cannot be read: {_said(error)}"
        raise FetchError(Outcome.CONNECTION, text) from error


async def _check(response: httpx2.Response) -> None:
    status = response.status_code
    if response.is_redirect:
        place = response.headers.get("location", "").partition("?")[0][:200]  # may hold a ticket
        text = f"answered {status}, a redirect to {place!r}; redirects are not followed, set url"
        raise FetchError(Outcome.REDIRECT, text)
    if status != httpx2.codes.OK:
        hint = _HINTS.get(status, "expected 200 with a metrics page")
        text = f"answered {status} {response.reason_phrase}: {hint}"
        server_error = response.is_server_error
        if server_error:
            said = await _first_line(response)
            text += f"; it said {said!r}" if said else ""
        overloaded = server_error or status == httpx2.codes.TOO_MANY_REQUESTS
        raise FetchError(Outcome.STATUS, text, overloaded=overloaded)
    encoding = _encoding(response)
    if encoding not in {"", "identity", "gzip", "x-gzip"}:
        text = f"answered in encoding {encoding[:40]!r}; only gzip was offered"
        raise FetchError(Outcome.ENCODING, text)


async def _first_line(response: httpx2.Response) -> str:
    """Return the first line of an error page in plain text, printable and short; else nothing.

    Exporters say there why they failed: a directory that is gone, a value collected twice.
    """
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/plain" or _encoding(response) not in {"", "identity"}:
        return ""
    start = b""
    try:
        async for chunk in response.aiter_raw(_ERROR_BYTES):
            start += chunk
            if len(start) >= _ERROR_BYTES:
                break
    except (httpx2.RemoteProtocolError, httpx2.ReadError):
        pass  # what came of it is shown
    line = start[:_ERROR_BYTES].decode(errors="replace").strip().partition("\n")[0].strip()
    return "".join(sign if sign.isprintable() else "?" for sign in line)[:MAX_SAID]


async def _receive(response: httpx2.Response, limits: FetchLimits) -> Fetched:
    gzip = _encoding(response) in {"gzip", "x-gzip"}
    unzip = zlib.decompressobj(wbits=_GZIP) if gzip else None
    intake = _Intake(limits.max_bytes, unzip)
    chunks: AsyncIterator[bytes] = response.aiter_raw()
    try:
        async for chunk in chunks:
            intake.take(chunk)
    except (httpx2.RemoteProtocolError, httpx2.ReadError):
        if not intake.size:
            raise
        return intake.body(cut=True)
    return intake.body(cut=False)


def _encoding(response: httpx2.Response) -> str:
    return response.headers.get("content-encoding", "").strip().lower()


def _broken_gzip(error: zlib.error) -> FetchError:
    return FetchError(Outcome.GZIP, f"the page is broken gzip: {error}")


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:200]
