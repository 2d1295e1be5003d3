"""Reads pages that speak of a whole node or cluster, and keeps the lines of one namespace.

A page of kube-state-metrics has hundreds of thousands of lines. Those of other namespaces are
dropped by one expression before anything is parsed, in a thread.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import httpx2
from pydantic import StringConstraints

from collector.sources.credentials import CredentialFiles, headers_for
from collector.sources.fetch import Fetched, FetchError, FetchLimits, Outcome, fetch, refuse_cookies
from collector.sources.looking import Seen
from collector.sources.page.families import compile_families
from collector.sources.page.keys import SeriesCache
from collector.sources.page.page import PIECE_BYTES, Page, parse
from collector.sources.protocols import Tools

MOST_BYTES: Final = 67_108_864
NO_LIMIT_FROM: Final = float(1 << 60)
_AT_ONCE: Final = 98_304  # bytes that are understood without a thread

KubeName: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
]
KubeGlob: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9*?][a-z0-9.*?-]{0,252}$")]


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """Where a page is and what of it is read.

    `families` are taken as they are exposed; of lines with a `namespace` label only those of
    `namespace` are kept, of others those that begin with one of `also`.
    """

    url: str
    namespace: str
    families: frozenset[str]
    also: tuple[str, ...] = ()
    token_file: Path | None = None
    insecure_http: bool = False
    ca_file: Path | None = None


class ClusterReader:
    """Fetches and parses one page; the meaning is given by who asks."""

    def __init__(self, page: ClusterPage, tools: Tools) -> None:
        self._page = page
        self._tools = tools
        self._limits = FetchLimits(tools.timeout_seconds, MOST_BYTES)
        self._headers = headers_for(
            page.url,
            CredentialFiles(bearer_token=page.token_file),
            insecure_http=page.insecure_http,
        )
        self._families = compile_families(dict.fromkeys(page.families, ("value",)))
        self._kept = _kept_lines(page)
        self._cache = SeriesCache()
        self._own: httpx2.AsyncClient | None = None

    async def read(self, meaning: Callable[[Page], Seen]) -> Seen:
        """Fetch the page and give it its meaning; trouble is in what comes back, never raised."""
        try:
            client = await self._client()
        except OSError as error:
            return Seen(problem=str(error), outcome=Outcome.CREDENTIALS)
        try:
            fetched = await fetch(client, self._page.url, self._headers, self._limits)
            if len(fetched.body) > _AT_ONCE or not self._cache.series:
                return await asyncio.to_thread(self._understand, fetched, meaning)
            return self._understand(fetched, meaning)
        except FetchError as error:
            if error.outcome is Outcome.CONNECTION:
                await self.close()  # the authority's file may have been renewed
            return Seen(problem=str(error), outcome=error.outcome)

    async def close(self) -> None:
        """Close the client that was made for `ca_file`."""
        if self._own is not None:
            await self._own.aclose()
        self._own = None

    def _understand(self, fetched: Fetched, meaning: Callable[[Page], Seen]) -> Seen:
        """Give the page its meaning.

        Raises:
            FetchError: If it is no metrics page, or its numbers lead to one that does not exist.
        """
        if fetched.cut:  # what is missing would be taken for what is not there
            raise FetchError(Outcome.CONNECTION, "the connection broke before the page was whole")
        lines = b"".join(it for piece in _pieces(fetched.body) for it in self._kept.findall(piece))
        if not lines:
            some = ", ".join(sorted(self._page.families)[:2])
            text = f"the page has none of the families wanted ({some}, ...); check the url"
            raise FetchError(Outcome.NOT_METRICS, text)
        page = parse(lines + b"\n", self._families, self._cache)
        try:
            return meaning(page)
        except (ArithmeticError, LookupError, ValueError) as error:  # not known to happen
            text = f"the page's values cannot be used: {type(error).__name__}: {error}"
            raise FetchError(Outcome.UNUSABLE, text[:200]) from error

    async def _client(self) -> httpx2.AsyncClient:
        """Return the shared client, or one of its own that trusts `ca_file`."""
        path = self._page.ca_file
        if path is None:
            return self._tools.client
        if self._own is None:
            try:
                context = await asyncio.to_thread(ssl.create_default_context, cafile=str(path))
            except (OSError, ssl.SSLError) as error:
                msg = (
                    f"ca_file {path}: {error.strerror or error}; expected certificates in PEM form"
                )
                raise OSError(msg) from error
            self._own = httpx2.AsyncClient(verify=context, trust_env=False)
            refuse_cookies(self._own)
        return self._own


def samples(page: Page, families: Iterable[str]) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield labels and value of the first of `families` that is on the page."""
    for family in families:
        found = page.samples.get(family)
        if found:
            yield from ((series.labels, value) for series, value in found)
            return


def label(labels: Mapping[str, str], *names: str) -> str:
    """Return the first of some labels that is there, empty if none is."""
    return next((labels[name] for name in names if labels.get(name)), "")


def fits(text: str, glob: str) -> bool:
    """Whether a name is meant by a pattern with `*` and `?`."""
    return fnmatchcase(text, glob)


def _kept_lines(page: ClusterPage) -> re.Pattern[bytes]:
    """Compile what is kept: comments, the namespace's lines, and those of `also`."""
    also = "".join(f"|{re.escape(name)}[{{ ]" for name in page.also)
    names = "|".join(sorted(map(re.escape, page.families), reverse=True))
    own = rf'(?:{names})\{{(?:[^\n]*,)?namespace="{re.escape(page.namespace)}"'
    return re.compile(
        rf"^(?:# (?:TYPE|HELP) (?:{names}) {also}|{own})[^\n]*\n?".encode(), re.MULTILINE
    )


def _pieces(body: bytes) -> Iterator[bytes]:
    """Cut a body at line ends: one search holds the interpreter only for a moment."""
    start = 0
    while start < len(body):
        stop = body.find(b"\n", start + PIECE_BYTES) + 1
        yield body[start : stop or len(body)]
        start = stop or len(body)
