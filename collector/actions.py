"""What is done about verdicts, one small class each; the pipeline calls them in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from alerts.breaker.controller import Controller
from alerts.policy import Change, PolicyMemory, PolicySettings, counts, step
from collector.store import Store
from collector.store import verdicts as stored
from collector.store.session import StoreError
from collector.store.thinning import Thinning
from collector.store.verdicts import KeptVerdict
from detectors.records import Reading, Verdict
from exporters.catalog import ALERT_ACTIVE
from exporters.prometheus import MetricsPage
from exporters.series import export_reading, export_verdicts_in_pieces

MAX_WAITING = 20_000  # verdicts that wait to be written
AT_ONCE = 500
SHOWN_AT_ONCE = 200  # verdicts turned to series before others get a turn on the loop
LOOK_BACK = timedelta(days=1)


class ShowMetrics:
    """Readings and verdicts as series of the metrics page."""

    name = "metrics"

    def __init__(self, page: MetricsPage) -> None:
        self._page = page

    async def take(self, verdicts: Sequence[Verdict], reading: Reading | None) -> None:
        if reading is not None:
            export_reading(self._page, reading)
        shown = worst_of_variants(verdicts)
        for _ in export_verdicts_in_pieces(self._page, shown, SHOWN_AT_ONCE):
            await asyncio.sleep(0)


def worst_of_variants(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return one verdict for each (detector, stream without variant): the worst that is known.

    Variants stand side by side (an upgrade, clients that ask for another k), and the page has no
    label for them. A variant that is stale or still collecting is unknown and hides no other.
    """
    worst: dict[tuple[str, ...], Verdict] = {}
    for verdict in verdicts:
        stream = verdict.stream
        title = (verdict.detector, stream.tier, str(stream.scope), stream.signal)
        known = worst.get(title)
        if known is None or (verdict.level.number, -verdict.age_seconds) > (
            known.level.number,
            -known.age_seconds,
        ):
            worst[title] = verdict
    return list(worst.values())


class TellBreakers:
    """Each completed scrape is one evaluation of its target's breaker and of its tier's.

    Verdicts of a tick are about pushed generations; with them the controller only remembers.
    """

    name = "breaker"

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def take(self, verdicts: Sequence[Verdict], reading: Reading | None) -> None:
        if reading is not None and reading.neighbour:
            return
        if reading is not None:
            ok = reading.up
            await self._controller.evaluate(reading.tier, reading.target, verdicts, reading_ok=ok)
            return
        for tier in sorted({verdict.stream.tier for verdict in verdicts}):
            mine = [verdict for verdict in verdicts if verdict.stream.tier == tier]
            await self._controller.evaluate(tier, "", mine, reading_ok=True)


class KeepHistory:
    """Changes of level, and a thinned series, into the store: gathered, and written once a tick."""

    name = "history"

    def __init__(self, store: Store, thinning: Thinning, *, now: Callable[[], datetime]) -> None:
        self.dropped = 0
        self._store = store
        self._thinning = thinning
        self._now = now
        self._waiting: deque[KeptVerdict] = deque()

    async def start(self) -> None:
        """Take over the levels that the history knows, so that a restart changes none."""
        lately = stored.Chosen(since=self._now() - LOOK_BACK)
        self._thinning.start_from(await self._store.read(stored.latest, lately))

    async def take(
        self,
        verdicts: Sequence[Verdict],
        reading: Reading | None,  # noqa: ARG002  # every action is given it
    ) -> None:
        for kept in self._thinning.choose(verdicts):
            if len(self._waiting) >= MAX_WAITING:
                self.dropped += 1
                self._waiting.popleft()
            self._waiting.append(kept)

    async def flush(self) -> None:
        """Write what was gathered, a bounded piece at a time so that a trip never waits long.

        What cannot be written is chosen again later.
        """
        while self._waiting:
            piece = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            try:
                await self._store.write(stored.record, piece)
            except StoreError:
                self._thinning.take_back([*piece, *self._waiting])
                self.dropped += len(piece) + len(self._waiting)
                self._waiting.clear()
                raise


class RaiseAlerts:
    """Verdicts rolled up to one alert a tier and cause; changes go to whoever listens."""

    name = "alerts"

    def __init__(
        self,
        *,
        page: MetricsPage,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        settings: PolicySettings,
    ) -> None:
        self.memory = PolicyMemory()
        self.listeners: Sequence[Callable[[Sequence[Change]], None]] = ()
        self._page = page
        self._now = now
        self._monotonic = monotonic
        self._settings = settings
        self._turn = asyncio.Lock()
        self._waiting: dict[tuple[str, object], Verdict] = {}

    async def take(
        self,
        verdicts: Sequence[Verdict],
        reading: Reading | None,  # noqa: ARG002  # every action is given it
    ) -> None:
        for verdict in verdicts:
            self._waiting[(verdict.detector, verdict.stream)] = verdict

    async def settle(self) -> tuple[Change, ...]:
        """Judge what came in since the last call, once a tick; return what changed."""
        waiting, self._waiting = list(self._waiting.values()), {}
        now, moment = self._now(), self._monotonic()
        async with self._turn:
            self.memory, changes = await asyncio.to_thread(
                step, self.memory, waiting, now, moment, self._settings
            )
        for change in changes:
            if change.after is None:
                self._page.set(ALERT_ACTIVE, {"tier": change.tier, "cause": change.cause}, 0)
        for tier, cause, level in counts(self.memory):
            self._page.set(ALERT_ACTIVE, {"tier": tier, "cause": cause}, level)
        if changes:
            for listener in self.listeners:
                listener(changes)
        return changes

    async def edit(self, change: Callable[[PolicyMemory], PolicyMemory]) -> None:
        """Replace the memory, between two settlings: something is no longer configured."""
        async with self._turn:
            self.memory = change(self.memory)
