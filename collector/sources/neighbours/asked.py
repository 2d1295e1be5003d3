"""A server that is asked a question of its own: a broker's depth, a provider's quota.

What every such source shares stands here: one bounded answer over HTTP, JSON that may hold
anything, the frame of a reading, and failures in words.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import httpx2
from pydantic import SecretStr

from collector.sources.fetch import FetchError, Outcome, refuse_cookies
from collector.sources.protocols import Place, ScrapeStats, Tools
from collector.values import Kind
from detectors.records import Absence, Reading
from detectors.remarks import Finding

MAX_ANSWER_BYTES: Final = 8_388_608
_MAX_SECRET_BYTES: Final = 4096
_SHOWN_LETTERS: Final = 200

Secret: TypeAlias = Annotated[SecretStr, Kind("secret")]


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one question: every offered signal is in `values` or in `absent`."""

    values: Mapping[str, float]
    absent: Mapping[str, Absence] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer over HTTP, whatever its status; names of headers in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Ask: TypeAlias = Callable[[], Awaitable[Found]]


class AskedSource:
    """Makes readings of what `ask` finds; its `FetchError` is the reading's problem."""

    def __init__(
        self, kind: str, place: Place, tools: Tools, *, offered: frozenset[str], ask: Ask
    ) -> None:
        self.kind = kind
        self.name = f"{kind}:{place.tier}/{place.target}"
        self._place = place
        self._tools = tools
        self._offered = offered
        self._ask = ask
        self._outcomes: Counter[str] = Counter()

    def stats(self) -> ScrapeStats:
        return ScrapeStats(outcomes=dict(self._outcomes))

    async def close(self) -> None:
        """Hold nothing open between reads."""

    async def read(self) -> Reading:
        """Ask once; trouble of the server is in the reading, never raised."""
        started = self._tools.monotonic()
        timeout = self._tools.timeout_seconds
        try:
            async with asyncio.timeout(timeout):
                found = await self._ask()
        except TimeoutError:
            text = f"no whole answer within {timeout:g} s"
            return self._failed(FetchError(Outcome.TIMEOUT, text), started)
        except FetchError as error:
            return self._failed(error, started)
        self._outcomes[Outcome.READ] += 1
        return self._reading(found, started, up=1.0)

    def _failed(self, error: FetchError, started: float) -> Reading:
        self._outcomes[error.outcome] += 1
        found = Found({}, dict.fromkeys(self._offered, Absence.SCRAPE_FAILED))
        return self._reading(found, started, up=0.0, problem=str(error))

    def _reading(self, found: Found, started: float, *, up: float, problem: str = "") -> Reading:
        ended = self._tools.monotonic()
        return Reading(
            tier=self._place.tier,
            target=self._place.target,
            source=self.kind,
            at=self._tools.now(),
            monotonic_seconds=ended,
            scrape_seconds=ended - started,
            values={**found.values, "up": up, "scrape_seconds": ended - started},
            absent=found.absent,
            findings=found.findings,
            problem=problem,
            neighbour=self._place.neighbour,
        )


async def answer(
    client: httpx2.AsyncClient, url: str, headers: Mapping[str, str], *, method: str = "GET"
) -> Answer:
    """Send one request, follow no redirect, and keep at most 8 MiB; the caller bounds the time.

    Raises:
        FetchError: If no whole answer comes. Any status is an answer.
    """
    refuse_cookies(client)
    body = bytearray()
    try:
        async with client.stream(
            method, url, headers=dict(headers), follow_redirects=False, timeout=None
        ) as response:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    text = f"the answer is larger than {MAX_ANSWER_BYTES:,} bytes; check the url"
                    raise FetchError(Outcome.TOO_LARGE, text)
            told = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status_code, told, bytes(body))
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        raise FetchError(Outcome.URL, f"the url cannot be used: {said(error)}") from error
    except (httpx2.HTTPError, ValueError, LookupError) as error:
        text = f"no answer from the server: {said(error)}; check that it runs, and its url"
        raise FetchError(Outcome.CONNECTION, text) from error


def document_of(got: Answer, hints: Mapping[int, str]) -> object:
    """Return the JSON of an answer.

    Args:
        got: The answer.
        hints: What to do about a status that is not 2xx, by status.

    Raises:
        FetchError: If the status is not 2xx, or the body is not JSON.
    """
    if not httpx2.codes.is_success(got.status):
        hint = hints.get(got.status, "expected 200 with JSON; check the url")
        raise FetchError(Outcome.STATUS, f"answered {got.status}: {hint}")
    try:
        found: object = json.loads(got.body)
    except (ValueError, RecursionError) as error:
        text = "answered something that is not JSON; check the url"
        raise FetchError(Outcome.UNUSABLE, text) from error
    return found


def members(value: object) -> Mapping[str, object]:
    """Return the members of a JSON object; none of anything else."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[Mapping[str, object]]:
    """Return the objects in a JSON array; none of anything else."""
    return [members(it) for it in value] if isinstance(value, list) else []


def amount(value: object) -> float | None:
    """Return a JSON number that counts something: finite and 0 or more; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0.0 else None


async def secret_text(given: SecretStr | None, file: Path | None) -> str:
    """Return a secret as configured, or as its file holds it now; empty if neither is given.

    Raises:
        FetchError: If the file cannot be read, or the secret cannot be part of a header.
    """
    if given is not None:
        return _usable(given.get_secret_value(), "the configured secret")
    if file is None:
        return ""
    return _usable(await asyncio.to_thread(_file_text, file), f"the secret file {file}")


def _file_text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_SECRET_BYTES + 1).decode("latin-1").strip()
    except OSError as error:
        text = f"the secret file {file} cannot be read: {said(error)}; check its path and rights"
        raise FetchError(Outcome.UNUSABLE, text) from error


def _usable(secret: str, what: str) -> str:
    """Return the secret if it is one; what is sent in a header would else be told in errors."""
    if secret and len(secret) <= _MAX_SECRET_BYTES and secret.isascii() and secret.isprintable():
        return secret
    text = f"{what} must hold one line of 1 to {_MAX_SECRET_BYTES} printable ASCII letters"
    raise FetchError(Outcome.UNUSABLE, text)


def said(error: Exception) -> str:
    """Return what an error says, shortened; its type where it says nothing."""
    return (str(error) or type(error).__name__)[:_SHOWN_LETTERS]
