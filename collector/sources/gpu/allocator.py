"""The allocator of a target's processes, from the probe that runs inside them.

A probe is read over HTTP on the loopback or a Unix socket; with several processes each has a socket
of its own in one folder (`directory`), and their figures are taken together by device.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

import httpx2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from collector.sources.fetch import FetchError, FetchLimits, Outcome, fetch
from collector.sources.gpu.allocators import RESERVED, Together, together
from collector.sources.gpu.probe_pages import FAMILIES, ProcessPage, read_page, wanted
from collector.sources.page.keys import SeriesCache
from collector.sources.page.series import Ledger
from collector.sources.protocols import Place, ScrapeStats, Source, Tools
from collector.values import Kind, Seconds, http_url, refuse
from detectors.records import Absence, Reading
from detectors.remarks import Finding, Noticed

ALLOCATOR: Final = "allocator"
MAX_PROCESSES: Final = 64
MAX_FILES: Final = 1024  # of a folder, looked at
MAX_BYTES: Final = 1_048_576  # of a page; a probe's is a few kB
_PATH_MOST: Final = 107  # of a Unix socket's address
_NAMED: Final = 5  # processes named in a finding
_CAUSES: Final = 10  # links of a chain of errors that are looked at


def probe_url(value: str) -> str:
    """Return the address of a probe, `http://…` or `unix:///path`."""
    if not value.startswith("unix:"):
        return http_url(value)
    path = urlsplit(value).path
    if not value.startswith("unix:///") or len(path.encode()) > _PATH_MOST or path == "/":
        refuse("unix:/// and the socket's path", f"a path of at most {_PATH_MOST} bytes")
    return value


ProbeUrl: TypeAlias = Annotated[str, AfterValidator(probe_url), Kind("URL")]


class AllocatorConfig(BaseModel):
    """PyTorch's allocator in the target's processes, by the probe (`fusewire render embed`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["allocator"] = "allocator"
    url: ProbeUrl | None = Field(
        default=None, description="The probe of one process: `http://127.0.0.1:9733`, `unix:///…`."
    )
    directory: Path | None = Field(
        default=None, description="Folder in which every process leaves a socket of its probe."
    )
    interval: Seconds = Field(default=5.0, description="Time between reads.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.url is None) is (self.directory is None):
            refuse("one of 'url' and 'directory'", "a directory is for servers of many processes")
        return self

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        return AllocatorSource(self, place, tools)


@dataclass(frozen=True, slots=True)
class _Heard:
    """What came of asking one probe: its page, or why there is none; `gone` if nobody is there."""

    name: str
    page: ProcessPage | None = None
    problem: str = ""
    gone: bool = False


class AllocatorSource:
    """Reads the probes of one target; not to be read twice at a time."""

    def __init__(self, settings: AllocatorConfig, place: Place, tools: Tools) -> None:
        self.name = f"{ALLOCATOR}:{place.tier}/{place.target}"
        self._settings, self._place, self._tools = settings, place, tools
        self._families = wanted()
        self._ledger = Ledger()
        self._outcomes: Counter[str] = Counter()
        self._sockets: dict[str, httpx2.AsyncClient] = {}
        self._caches: dict[str, SeriesCache] = {}
        self._conf: str | None = None

    def stats(self) -> ScrapeStats:
        return ScrapeStats(
            outcomes=dict(self._outcomes),
            resets=self._ledger.resets,
            series=self._ledger.tracked,
            series_refused=self._ledger.refused,
        )

    async def close(self) -> None:
        for client in self._sockets.values():
            await client.aclose()
        self._sockets.clear()

    async def read(self) -> Reading:
        """Ask every probe once; trouble is in the reading, never raised."""
        started = self._tools.monotonic()
        try:
            addresses = await asyncio.to_thread(self._addresses)
        except OSError as error:
            self._outcomes[Outcome.CONNECTION] += 1
            text = f"{self._settings.directory}: {error.strerror or error}; is a probe started?"
            return self._failed(text, started)
        await self._forget(addresses)
        asked = addresses[:MAX_PROCESSES]
        heard = await asyncio.gather(*(self._ask(name, url) for name, url in asked))
        pages = [it.page for it in heard if it.page is not None]
        if not pages:
            return self._failed(_nobody(heard, self._settings), started)
        whole = all(it.page or it.gone for it in heard) and len(asked) == len(addresses)
        found = together(pages, self._ledger, whole=whole)
        found.findings += _silent(heard)
        if len(asked) < len(addresses):
            text = f"only {MAX_PROCESSES} probes of a folder are read; split them over folders"
            found.findings.append(Finding("too_many_probes", RESERVED, text))
        return self._reading(found, self._noticed(pages), started)

    def _addresses(self) -> list[tuple[str, str]]:
        """Return name and URL of each probe; raises `OSError` if the folder cannot be read."""
        if self._settings.directory is None:
            return [("", str(self._settings.url))]
        found = []
        for path in _files(self._settings.directory):
            if path.suffix == ".sock":
                found.append((path.stem, f"unix://{path}"))
            elif path.suffix == ".port" and path.is_file():  # to open a pipe would take for ever
                found.append((path.stem, f"http://{_first_line(path)}"))
        return sorted(found)

    async def _forget(self, addresses: list[tuple[str, str]]) -> None:
        """Let go of what is held for processes that are gone."""
        known = {url for _, url in addresses}
        for url in self._sockets.keys() - known:
            await self._sockets.pop(url).aclose()
        self._caches = {url: it for url, it in self._caches.items() if url in known}

    async def _ask(self, name: str, url: str) -> _Heard:
        limits = FetchLimits(timeout_seconds=self._tools.timeout_seconds, max_bytes=MAX_BYTES)
        client, page_url = self._tools.client, url if urlsplit(url).path else f"{url}/metrics"
        if url.startswith("unix:"):
            client, page_url = self._socket(url), "http://probe/metrics"
        try:
            fetched = await fetch(client, page_url, {}, limits)
        except FetchError as error:
            self._outcomes[error.outcome] += 1
            return _Heard(name, problem=str(error), gone=_nobody_there(error))
        cache = self._caches.setdefault(url, SeriesCache(limit=1000, limit_bytes=MAX_BYTES))
        page = None if fetched.cut else read_page(fetched.body, self._families, cache)
        self._outcomes[Outcome.READ if page else Outcome.NOT_METRICS] += 1
        return _Heard(name, page, "" if page else "answered no whole page of an allocator probe")

    def _socket(self, url: str) -> httpx2.AsyncClient:
        """Return the client of one Unix socket; the shared one speaks TCP only."""
        known = self._sockets.get(url)
        if known is None:
            transport = httpx2.AsyncHTTPTransport(uds=urlsplit(url).path, verify=False)
            known = self._sockets[url] = httpx2.AsyncClient(transport=transport, trust_env=False)
        return known

    def _noticed(self, pages: list[ProcessPage]) -> tuple[Noticed, ...]:
        """Say once that the processes run with other settings of the allocator."""
        used = [page.effective for page in pages if page.state == "cuda"]
        if not used:
            return ()
        before, self._conf = self._conf, " | ".join(sorted({it.conf if it else "" for it in used}))
        if before is None or before == self._conf:
            return ()
        return (Noticed("allocator_settings", before[:100], self._conf[:100]),)

    def _reading(
        self, found: Together, noticed: tuple[Noticed, ...], started: float, *, problem: str = ""
    ) -> Reading:
        ended = self._tools.monotonic()
        seconds = ended - started
        at: datetime = self._tools.now()
        return Reading(
            tier=self._place.tier,
            target=self._place.target,
            source=ALLOCATOR,
            at=at,
            monotonic_seconds=ended,
            scrape_seconds=seconds,
            values={**found.values, "up": 0.0 if problem else 1.0, "scrape_seconds": seconds},
            parts=found.parts,
            absent=found.absent,
            restarted=self._ledger.restarted,
            problem=problem,
            findings=tuple(found.findings),
            noticed=noticed,
            neighbour=self._place.neighbour,
        )

    def _failed(self, problem: str, started: float) -> Reading:
        absent = dict.fromkeys(FAMILIES, Absence.SCRAPE_FAILED)
        return self._reading(Together(absent=absent), (), started, problem=problem)


def _files(folder: Path) -> list[Path]:
    return [path.absolute() for path, _ in zip(folder.iterdir(), range(MAX_FILES), strict=False)]


def _nobody_there(error: BaseException | None) -> bool:
    """Whether no process listens at an address; no permission to ask, say, is another thing."""
    for _ in range(_CAUSES):
        if error is None or isinstance(error, (ConnectionRefusedError, FileNotFoundError)):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, (ConnectionRefusedError, FileNotFoundError))


def _first_line(path: Path) -> str:
    """Return the host and port that a process wrote down; something unusable if it is gone.

    Nobody is asked who is not on this machine, whatever somebody wrote into the folder.
    """
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            host, _, port = file.readline(100).strip().rpartition(":")
        if not ip_address(host).is_loopback or not port.isdecimal():
            return "127.0.0.1:0"
    except (FileNotFoundError, ValueError):
        return "127.0.0.1:0"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _nobody(heard: list[_Heard], settings: AllocatorConfig) -> str:
    """Say why no probe was heard."""
    if settings.url is not None:
        return f"{settings.url}: {heard[0].problem}; is the probe started in the server?"
    if heard:
        said = f"process {heard[0].name}: {heard[0].problem}"
        return f"{settings.directory}: none of {len(heard)} probes can be read; {said}"
    return f"{settings.directory}: no socket of a probe in it; start the probe in the server"


def _silent(heard: list[_Heard]) -> list[Finding]:
    """Return findings about probes that could not be read."""
    found = []
    gone = [it.name for it in heard if it.gone]
    if gone:
        text = (
            f"process {', '.join(gone[:_NAMED])} ended without taking its socket away, as one does "
            "that was killed; the next process that starts a probe there does"
        )
        found.append(Finding("dead_socket", RESERVED, text))
    mute = [it for it in heard if it.problem and not it.gone]
    if mute:
        names = ", ".join(it.name for it in mute[:_NAMED])
        text = f"process {names} gave no figures, so no sums are told: {mute[0].problem}"
        found.append(Finding("probe_silent", RESERVED, text))
    return found
