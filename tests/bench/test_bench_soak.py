"""A day in two minutes: targets, models and segments come and go, and memory stays where it was."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from alerts import policy
from alerts.policy import PolicySettings
from collector.actions import RaiseAlerts, ShowMetrics
from collector.config import load
from collector.health import Health
from collector.ingest.decode import decode
from collector.ingest.records import Defaults, Limits, TierNames
from collector.pipeline import Pipeline
from collector.setups import detectors_by_tier
from collector.sources.scrape import ScrapeSource, ScrapeTarget
from collector.state import State
from collector.verdicts import NewestVerdicts
from detectors.records import Scope
from exporters.prometheus import MetricsPage
from tests.bench.serving import ROOT
from tests.bench.test_bench_intake import chat_line

STEP_SECONDS = 20
HOURS = 24
TARGETS = 4
TARGET_LIVES_SECONDS = 1800
MODEL_LIVES_SECONDS = 3600
SEGMENT_LIVES_SECONDS = 7200
MARK_SECONDS = 7200
WARM_SECONDS = 14_400
LINES = 4
PAGES = [
    (ROOT / "tests/fixtures/metrics" / name).read_bytes()
    for name in ("vllm-0.32.0-load.txt", "vllm-0.9.2.post2-load.txt", "vllm-0.8.5.post2-load.txt")
]


def rss_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@dataclass
class Clock:
    """Time as the day sees it."""

    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 11, 29, tzinfo=UTC) + timedelta(seconds=self.seconds)


class Day:
    """The parts of the service that remember, with a day's comings and goings."""

    def __init__(self, folder: Path, client: httpx2.AsyncClient) -> None:
        self.clock = Clock()
        config_file = folder / "fusewire.yaml"
        config_file.write_text("tiers:\n  chat:\n    targets: [http://127.0.0.1:9]\n")
        readings, panels = detectors_by_tier(load(config_file, {}))
        now, monotonic = self.clock.now, self.clock.monotonic
        self.page = MetricsPage(monotonic=monotonic)
        self.state = State(tick_seconds=STEP_SECONDS, now=now, monotonic=monotonic)
        self.newest = NewestVerdicts(now=now)
        self.alerts = RaiseAlerts(
            page=self.page, now=now, monotonic=monotonic, settings=PolicySettings()
        )
        self.pipeline = Pipeline(
            state=self.state,
            actions=(self.newest, ShowMetrics(self.page), self.alerts),
            health=Health(),
        )
        self.pipeline.use(readings, panels)
        self._client = client
        self._line: dict[str, Any] = json.loads(chat_line(5))
        self._made = 0
        self._segment = ""
        self.sources: list[ScrapeSource] = [self._source() for _ in range(TARGETS)]

    def _source(self) -> ScrapeSource:
        self._made += 1
        target = ScrapeTarget("chat", f"t{self._made}", f"http://h{self._made % len(PAGES)}")
        now, monotonic = self.clock.now, self.clock.monotonic
        return ScrapeSource(target, client=self._client, now=now, monotonic=monotonic)

    async def step(self) -> None:
        """Let one tick pass: every target is scraped, some lines come, the tick is judged."""
        self.clock.seconds += STEP_SECONDS
        await self._come_and_go()
        for source in self.sources:
            await self.pipeline.take_reading(await source.read())
        for batch in decode(self._body(), self._defaults(), Limits()).batches:
            self.pipeline.take_batch(batch)
        await self.pipeline.judge(self.state.close_tick())
        gone = set(self.state.forget_idle())
        self.newest.forget(lambda stream: (stream.tier, stream.scope, stream.variant) in gone)
        await self.alerts.settle()

    async def _come_and_go(self) -> None:
        if self.clock.seconds % TARGET_LIVES_SECONDS == 0:
            left = self.sources.pop(0)
            await self._forget(left.name.rpartition("/")[2])
            self.sources.append(self._source())
        segment = f"customer-{int(self.clock.seconds // SEGMENT_LIVES_SECONDS)}"
        if segment != self._segment:
            scope = Scope("segment", self._segment)
            self.state.forget_scope("chat", scope)
            self.newest.forget(lambda stream: stream.scope == scope)
            self._segment = segment

    async def _forget(self, target: str) -> None:
        self.state.forget_target("chat", target)
        self.newest.forget(lambda stream: str(stream.scope) == f"target:{target}")
        self.page.forget(tier="chat", target=target)
        await self.alerts.edit(lambda memory: policy.forget(memory, tier="chat", target=target))

    def _body(self) -> bytes:
        number = int(self.clock.seconds // MODEL_LIVES_SECONDS)
        self._line["response"]["model"] = f"model-{number}"
        self._line["segment"] = self._segment
        return "\n".join([json.dumps(self._line)] * LINES).encode()

    def _defaults(self) -> Defaults:
        names = TierNames(segments=frozenset({self._segment}))
        return Defaults(arrival=self.clock.now(), tiers={"chat": names}, tier="chat", live=False)


def answer(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, stream=httpx2.ByteStream(PAGES[int(request.url.host[1:])]))


@pytest.mark.bench
@pytest.mark.slow
@pytest.mark.anyio
async def test_memory_is_flat_over_a_day_of_comings_and_goings(tmp_path: Path) -> None:
    marks: dict[float, int] = {}
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        day = Day(tmp_path, client)
        while day.clock.seconds < HOURS * 3600:
            await day.step()
            if day.clock.seconds % MARK_SECONDS == 0:
                marks[day.clock.seconds / 3600] = rss_bytes()

    warm = [rss for hour, rss in marks.items() if hour * 3600 >= WARM_SECONDS]
    print(
        f"\na day in steps of {STEP_SECONDS} s; {day.page.series} series, "
        f"{len(day.state.lanes)} lanes, {len(day.state.memories)} memories at its end"
    )
    for hour, rss in marks.items():
        print(f"  after {hour:>4.0f} h {rss / 1e6:>8.1f} MB")
    print(f"  since warm-up {max(warm) / warm[0] - 1:+.1%}")
