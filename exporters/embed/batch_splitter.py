"""Fusewire's batch splitter: cuts a batch into pieces that the tier takes now.

One file, standard library only, Python 3.9 or newer: copy it into the client, beside the client
kit or without it.

    reader = LimitsReader("http://fusewire:9731", "chat")      # asks GET /v1/limits/chat
    for batch in split(documents, tokens=count, limits=reader.newest):
        send(batch.items)                                      # in order, nothing lost or doubled
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from typing import Any, Callable, NamedTuple, Optional, cast
from urllib import parse, request

DOCUMENT_MOST = 65_536
# what reading an answer may raise, whatever the network sends; a URLError is an OSError
_UNREADABLE = (OSError, HTTPException, ValueError, ArithmeticError, RecursionError)


class Batch(NamedTuple):
    """Items to send together; `oversized` is one item that is over the limit by itself."""

    items: list[Any]
    tokens: int
    oversized: bool = False


class Limits(NamedTuple):
    """What a tier takes now, as `GET /v1/limits/{tier}` tells; None is not known."""

    admit_ratio: float = 1.0
    retry_after_seconds: float = 0.0
    max_prompt_tokens: Optional[int] = None
    batch_token_budget: Optional[int] = None
    in_flight_requests: Optional[int] = None


class _Straight(request.HTTPRedirectHandler):
    """Follows no redirect: it would take the token elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:  # noqa: ANN401  # whatever it is given
        return None


class LimitsReader:
    """Asks Fusewire what a tier takes, at most every `refresh_seconds`; blocks while it asks.

    What is known for longer than `keep_seconds` counts as not known. In asyncio, refresh in a
    thread (`asyncio.to_thread(reader.newest)`) and hand `lambda: reader.known` to `split`.
    """

    def __init__(  # noqa: PLR0913  # a setting each, all named
        self,
        url: str,
        tier: str,
        *,
        token: str = "",
        refresh_seconds: float = 10.0,
        keep_seconds: float = 60.0,
        timeout_seconds: float = 3.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            msg = f"fusewire client kit: {url!r}, expected the http(s) address of Fusewire"
            raise ValueError(msg)
        self._url = f"{url.rstrip('/')}/v1/limits/{parse.quote(tier, safe='')}"
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._refresh, self._keep, self._timeout = refresh_seconds, keep_seconds, timeout_seconds
        self._monotonic = monotonic
        # past HTTP_PROXY: Fusewire is inside, and the proxy is none of those who may see this
        self._open = request.build_opener(_Straight, request.ProxyHandler({})).open
        self._asked = self._told = -math.inf
        self.known = Limits()

    def newest(self) -> Limits:
        """Return what the tier takes; all of it unknown if nobody has told lately."""
        if self._monotonic() - self._asked >= self._refresh:
            self._asked = self._monotonic()
            try:
                self.known, self._told = self._ask(), self._asked
            except _UNREADABLE:
                if self._asked - self._told > self._keep:
                    self.known = Limits()
        return self.known

    def _ask(self) -> Limits:
        asked = request.Request(self._url, headers=self._headers)  # noqa: S310  # checked above
        with self._open(asked, timeout=self._timeout) as answer:
            told = json.loads(answer.read(DOCUMENT_MOST))
        members = told if isinstance(told, dict) else {"admit_ratio": told}
        known = {it: members[it] for it in Limits._fields if members.get(it) is not None}
        if not all(_is_amount(it) for it in known.values()):
            msg = "limits that are no numbers"
            raise ValueError(msg)
        return Limits(**known)


def _is_amount(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0.0 <= float(cast("float", value)) < math.inf


def split(
    items: Iterable[Any],
    *,
    tokens: Callable[[Any], int],
    limits: Callable[[], Limits] = Limits,
    max_requests: int = 64,
    max_tokens: Optional[int] = None,
) -> Iterator[Batch]:
    """Cut items into batches that the tier takes, in order; asks `limits` before each one.

    An item over a limit by itself comes alone and `oversized`: shorten it, or leave it out.
    """
    batch: list[Any] = []
    size, most, (requests, budget, longest) = 0, max_tokens, (max_requests, math.inf, math.inf)
    for item in items:
        if not batch:
            requests, budget, longest = _bounds(limits(), max_requests, most)
        count = tokens(item)
        if batch and (len(batch) >= requests or size + count > budget or count > longest):
            yield Batch(batch, size)
            batch, size = [], 0
            requests, budget, longest = _bounds(limits(), max_requests, most)
        if count > min(budget, longest):
            yield Batch([item], count, oversized=True)
            continue
        batch.append(item)
        size += count
    if batch:
        yield Batch(batch, size)


def _bounds(limits: Limits, requests: int, tokens: Optional[int]) -> tuple[int, float, float]:
    flying = requests if limits.in_flight_requests is None else int(limits.in_flight_requests)
    budgets = [float(it) for it in (tokens, limits.batch_token_budget) if it is not None]
    longest = math.inf if limits.max_prompt_tokens is None else float(limits.max_prompt_tokens)
    return max(min(requests, flying), 1), min(budgets, default=math.inf), longest
