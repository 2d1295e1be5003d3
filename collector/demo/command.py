"""`fusewire demo`: the real service against a recorded tier that goes through an incident."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import httpx2
import msgspec
from rich.console import Console

from collector.demo import settings
from collector.demo.chapters import CHAPTERS, Chapter, Moment
from collector.demo.children import Child
from collector.demo.client import Client, Upstream
from collector.demo.facts import Service
from collector.demo.levers import DemoLevers
from collector.demo.processes import check_alive, start_all, wait_ready
from collector.demo.recorded import BASELINE, SETS, read_exchanges
from collector.demo.serving import taken_ports, utc_now
from collector.demo.story import Story, StoryError
from collector.demo.summary import Summary, show, summarise
from collector.demo.timeline import Timeline

_PASSED, _NOT_PASSED, _CANNOT_START = 0, 1, 2


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line chose. `folder` None makes a folder for temporary files.

    `pull`: the gateway long-polls `/v1/state` instead of being told by webhook.
    """

    stay: bool = False
    json: bool = False
    pull: bool = False
    folder: Path | None = None


async def run(options: DemoOptions, *, chapters: Sequence[Chapter] = CHAPTERS) -> int:
    """Tell the incident; return 0 when all of it was seen, 1 when not, 2 if it cannot start.

    Every process it starts is ended when this returns, also on Ctrl-C (`CancelledError`).
    """
    console = Console(file=sys.stderr if options.json else sys.stdout, highlight=False)
    timeline = Timeline(console)
    taken = taken_ports(*settings.ports())
    if taken:
        timeline.line(
            f"demo: ports {taken} of {settings.HOST} are taken, expected all free; "
            "end what listens there (an earlier demo, or a service of your own) and start again",
            "bold red",
        )
        return _CANNOT_START
    folder = _run_folder(options.folder)
    if folder is None:
        timeline.line(
            f"demo: {options.folder} is not empty, and the store of an earlier run would go on; "
            "give a new folder",
            "bold red",
        )
        return _CANNOT_START
    _introduce(timeline, folder)
    with _ended_by_signals() as received:
        return await _ended(
            _run_in(folder, options, timeline, chapters), timeline, folder, received
        )


async def _ended(
    running: Awaitable[int], timeline: Timeline, folder: Path, received: Sequence[str]
) -> int:
    """Return the exit code of `running`; say what stopped it if it was stopped."""
    try:
        return await running
    except asyncio.CancelledError:
        if not received:
            raise
        timeline.line(f"demo: ended by {received[0]}", "bold red")
        return _NOT_PASSED
    except StoryError as error:
        timeline.stop()
        timeline.line(f"demo: {error}", "bold red")
        timeline.line(f"  logs of the run: {folder}")
        return _NOT_PASSED


@dataclass(frozen=True, slots=True)
class _Run:
    """Everything that is up while the story is told."""

    folder: Path
    children: Sequence[Child]
    service: Service
    client: Client
    levers: DemoLevers
    timeline: Timeline

    async def look(self) -> Moment:
        return Moment(await self.service.look(), self.client.totals)


async def _run_in(
    folder: Path, options: DemoOptions, timeline: Timeline, chapters: Sequence[Chapter]
) -> int:
    async with start_all(folder, pull=options.pull) as children, _http() as http:
        service = Service(http, url=settings.address(settings.SERVICE_PORT))
        await wait_ready(service, http, children)
        async with _client() as client:
            levers = DemoLevers(
                http, control=settings.address(settings.CONTROL_PORT), client=client
            )
            summary = await _tell(
                _Run(folder, children, service, client, levers, timeline), chapters
            )
            show(summary, timeline)
            if options.json:
                sys.stdout.write(msgspec.json.encode(summary).decode() + "\n")
                sys.stdout.flush()
            if options.stay:
                await _stay(timeline)
    return _PASSED if summary.passed else _NOT_PASSED


async def _tell(run: _Run, chapters: Sequence[Chapter]) -> Summary:
    story = Story(
        look=run.look,
        alive=lambda: check_alive(run.children),
        levers=run.levers,
        teller=run.timeline,
        now=utc_now,
        monotonic=time.monotonic,
        sleep=asyncio.sleep,
    )
    run.timeline.start()
    try:
        told = await story.tell(chapters)
    finally:
        run.timeline.stop()
    return summarise(
        told,
        story.times,
        run.client.totals,
        seconds=story.seconds,
        places=(_page(), str(run.folder)),
    )


def _page() -> str:
    return settings.address(settings.SERVICE_PORT) + "/"


def _introduce(timeline: Timeline, folder: Path) -> None:
    timeline.line("Fusewire demo: an incident, played to the real service", "bold")
    timeline.line(f"  status page     {_page()}", "bold")
    timeline.line(f"  configuration   {folder / settings.CONFIG_NAME}")
    timeline.line(f"                  {settings.shown_settings(settings.config_text())}")
    timeline.line(
        "  recorded        metrics pages and completions of a real vLLM 0.32.0; nothing is computed"
    )
    timeline.line(
        "  played          one page a scrape, looped, counters continued so that they never fall;"
    )
    timeline.line(
        "                  full pages are put in the order of their queue; prompts and answers"
    )
    timeline.line("                  are drawn with replacement from 550 recorded completions")
    rates = ", ".join(f"{name} {rate:g}" for name, rate in settings.RATES.items())
    timeline.line(f"  client          requests a second: {rates}")


def _run_folder(chosen: Path | None) -> Path | None:
    """Return the folder of this run with the configuration in it; None if it is not empty."""
    folder = chosen or Path(tempfile.mkdtemp(prefix="fusewire-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        return None
    (folder / settings.CONFIG_NAME).write_text(settings.config_text(), encoding="utf-8")
    return folder


def _http() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=5.0, trust_env=False)


@asynccontextmanager
async def _client() -> AsyncIterator[Client]:
    """Run the client until the block ends."""
    async with _http() as http:
        client = Client(
            http,
            url=settings.address(settings.GATEWAY_PORT) + "/v1/completions",
            upstreams=[Upstream(name, rate, BASELINE) for name, rate in settings.RATES.items()],
            sets={name: read_exchanges(name) for name in SETS},
            rng=Random(1),  # noqa: S311  # draws recordings, guards nothing
            monotonic=time.monotonic,
        )
        sending = asyncio.create_task(client.run())
        try:
            yield client
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending


@contextmanager
def _ended_by_signals() -> Iterator[list[str]]:
    """Let the signals that end a process end this task, so that the children are ended too.

    Yields the list that the names of such signals come into. Ctrl-C is asyncio's own business.
    """
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGHUP)
    received: list[str] = []

    def end(name: str) -> None:
        received.append(name)
        if task is not None:
            task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, end, number.name)
    try:
        yield received
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _stay(timeline: Timeline) -> None:
    timeline.line(f"  the page stays at {_page()} until Ctrl-C", "bold")
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
