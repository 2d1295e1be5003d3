"""Reload: whole or not at all; what is configured no more leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from alerts.breaker.journal import JournalError
from alerts.breaker.records import Key
from collector.config import load
from collector.parts import Reloaded
from collector.reloading import reload
from collector.service import Service
from collector.wiring import Outside, make_service
from detectors.records import TIER_SCOPE, Level, Scope, Stream, Verdict
from tests.builders import START, a_batch, a_reading

pytestmark = pytest.mark.anyio

FILE = """
store: sqlite:///{folder}/fusewire.db
mode: {mode}
scrape_interval: {interval}
tiers:
  chat:
    segments: [search, support]
    targets:
      - {{id: a, url: "http://127.0.0.1:11"}}
      - {{id: b, url: "http://127.0.0.1:12"}}
    detectors:
      - {{kind: limit, name: queue, signal: requests_waiting, trip: 10, clear: 5}}
      - {{kind: ks, name: drift, side: input}}
  code:
    targets: [{{id: c, url: "http://127.0.0.1:13"}}]
"""


@dataclass
class Reloading:
    """A service that polls nothing yet, and the file that it reads again."""

    service: Service
    folder: Path

    @property
    def page(self) -> str:
        return self.service.parts.page.render()[0].decode()

    async def change(self, old: str, new: str) -> Reloaded:
        file = self.folder / "fusewire.yaml"
        text = file.read_text()
        assert old in text, old
        file.write_text(text.replace(old, new))
        return await reload(self.service, file, {})


@pytest.fixture
async def running(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Reloading]:
    """A service with verdicts, readings and counts about everything in its file."""
    file = tmp_path / "fusewire.yaml"
    file.write_text(FILE.format(folder=tmp_path, mode="enforce", interval="20s"))
    service = await make_service(load(file, {}), Outside(lambda: None))
    await service.parts.controller.start()
    for tier, target in (("chat", "a"), ("chat", "b"), ("code", "c")):
        reading = replace(
            a_reading({"requests_waiting": 20.0, "requests_running": 1.0}, target=target),
            tier=tier,
            at=service.parts.now(),
        )
        await service.pipeline.take_reading(reading)
    for tier in ("chat", "code"):
        batch = a_batch({"prompt_tokens": [5.0]}, segment="search" if tier == "chat" else "")
        service.parts.take_batch(replace(batch, tier=tier, newest_at=service.parts.now()))
    await service.pipeline.judge(service.parts.state.close_tick())
    await service.alerts.settle()
    await service.control()
    service._show()
    yield Reloading(service, tmp_path)
    await service.stop()


async def test_a_tier_that_is_removed_leaves_nothing_behind(running: Reloading) -> None:
    assert 'tier="code"' in running.page
    text = (running.folder / "fusewire.yaml").read_text()

    outcome = await running.change(text[text.index("  code:") :], "")

    parts = running.service.parts
    assert outcome.ok, outcome.problems
    assert 'tier="code"' not in running.page
    assert all(lane[0] != "code" for lane in parts.state.lanes)
    assert all(place[1] != "code" for place in parts.state.memories)
    assert all(verdict.stream.tier != "code" for verdict in parts.newest.listed())
    assert {key.tier for key in parts.controller.breakers} == {"chat"}
    assert set(running.service.readers) == {Key("chat", "a"), Key("chat", "b")}


async def test_a_target_that_is_removed_leaves_nothing_and_the_others_keep_all(
    running: Reloading,
) -> None:
    kept = running.service.readers[Key("chat", "a")]

    outcome = await running.change('      - {id: b, url: "http://127.0.0.1:12"}\n', "")

    assert outcome.ok, outcome.problems
    assert 'target="b"' not in running.page
    assert 'target="a"' in running.page
    assert running.service.readers[Key("chat", "a")] is kept  # its counters go on


async def test_a_detector_that_means_another_thing_starts_from_nothing(running: Reloading) -> None:
    state = running.service.parts.state
    assert ("queue", "chat", "a") in state.memories

    outcome = await running.change("trip: 10, clear: 5", "trip: 100, clear: 5")
    reading = replace(
        a_reading({"requests_waiting": 20.0, "requests_running": 1.0}, target="a"),
        at=running.service.parts.now(),
    )
    gone = ("queue", "chat", "a") not in state.memories
    verdicts = await running.service.pipeline.take_reading(reading)

    assert outcome.ok, outcome.problems
    assert gone
    assert [v.level for v in verdicts if v.detector == "queue"] == [Level.OK]


async def test_a_detector_of_another_kind_under_an_old_name_breaks_nothing(
    running: Reloading,
) -> None:
    outcome = await running.change(
        "{kind: limit, name: queue, signal: requests_waiting, trip: 10, clear: 5}",
        "{kind: queue_growth, name: queue}",
    )
    reading = replace(
        a_reading({"requests_waiting": 20.0, "requests_running": 1.0}, target="a"),
        at=running.service.parts.now(),
    )
    await running.service.pipeline.take_reading(reading)

    assert outcome.ok, outcome.problems
    assert running.service.health.conditions["detector:queue"].problem == ""


async def test_a_detector_that_is_removed_takes_its_series_along(running: Reloading) -> None:
    assert 'detector="drift"' in running.page

    outcome = await running.change("      - {kind: ks, name: drift, side: input}\n", "")

    assert outcome.ok, outcome.problems
    assert 'detector="drift"' not in running.page
    assert 'detector="queue"' in running.page
    assert "detector:drift" not in running.page


async def test_a_segment_that_is_removed_takes_its_lane_and_series_along(
    running: Reloading,
) -> None:
    stream = Stream("chat", Scope("segment", "search"), "prompt_tokens", "v1")
    verdict = Verdict("drift", stream, Level.WARNING, START)
    await running.service.pipeline._act([verdict], None)

    outcome = await running.change("segments: [search, support]", "segments: [support]")

    parts = running.service.parts
    assert outcome.ok, outcome.problems
    assert [lane[1] for lane in parts.state.lanes if lane[0] == "chat"] == [TIER_SCOPE]
    assert 'segment="search",signal' not in running.page


async def test_a_bad_file_changes_nothing_and_lists_every_problem(running: Reloading) -> None:
    service = running.service
    before = (service.config, dict(service.readers), service.parts.tiers)

    outcome = await running.change("mode: enforce", "mode: perhaps\nsurplus: 1")

    assert not outcome.ok
    assert len(outcome.problems) == 2
    assert (service.config, dict(service.readers), service.parts.tiers) == before
    assert "fusewire_config_last_reload_successful 0.0" in running.page
    assert service.parts.last_reload == outcome


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [("mode: enforce", "mode: enforce\ntick: 1s", "tick"), ("fusewire.db", "other.db", "store")],
)
async def test_what_cannot_change_while_running_is_refused(
    running: Reloading, old: str, new: str, key: str
) -> None:
    outcome = await running.change(old, new)

    assert not outcome.ok
    assert any(problem.startswith(f"{key}: it cannot change") for problem in outcome.problems)


async def test_what_counts_at_the_new_address_of_a_target_is_no_rise_of_the_old(
    running: Reloading,
) -> None:
    service = running.service

    async def corrupted(count: float) -> Level:
        reading = replace(a_reading({"corrupted_requests_total": count}), tier="code", target="c")
        verdicts = await service.pipeline.take_reading(replace(reading, at=service.parts.now()))
        return next(it.level for it in verdicts if it.detector == "corrupted")

    before = await corrupted(0.0)
    outcome = await running.change("http://127.0.0.1:13", "http://127.0.0.1:14")

    assert outcome.ok, outcome.problems
    assert before is Level.OK
    assert await corrupted(5.0) is Level.WARNING  # they were there before the first scrape


async def test_a_reload_that_the_breakers_cannot_take_changes_nothing(
    running: Reloading, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = running.service
    before = (service.config, service.written, dict(service.readers), service.finding)

    async def full(*_: object) -> None:
        msg = "journal: the disk is full"
        raise JournalError(msg)

    monkeypatch.setattr(service.parts.controller, "update_tiers", full)
    outcome = await running.change(
        "targets: [{id: c,", "discovery: [{kind: file_sd, files: [x]}]\n    targets: [{id: d,"
    )

    assert outcome.problems == ("the breakers cannot take it: journal: the disk is full",)
    assert (service.config, service.written, dict(service.readers), service.finding) == before


async def test_a_tier_that_becomes_a_shadow_has_no_breaker_on_the_page(running: Reloading) -> None:
    assert 'fusewire_breaker_state{target="",tier="code"}' in running.page

    outcome = await running.change(
        "  code:\n    targets", "  code:\n    role: shadow\n    shadow_of: chat\n    targets"
    )

    assert outcome.ok, outcome.problems
    assert 'fusewire_breaker_state{target="",tier="code"}' not in running.page
    assert 'fusewire_admit_ratio{target="",tier="code"}' not in running.page


NEIGHBOUR = """    neighbours:
      batch: {kind: page, url: "http://127.0.0.1:14", signals: {client_queue_size: depth}}
"""


async def test_a_neighbour_comes_and_goes_with_the_file(running: Reloading) -> None:
    key = Key("chat", "batch")

    came = await running.change("  code:\n", NEIGHBOUR + "  code:\n")
    there = key in running.service.readers
    reading = replace(
        a_reading({"up": 1.0, "client_queue_size": 3.0}, target="batch"),
        at=running.service.parts.now(),
        neighbour=True,
    )
    await running.service.pipeline.take_reading(reading)
    shown = 'fusewire_client_queue_size{target="batch",tier="chat"} 3.0' in running.page
    breakers = set(running.service.parts.controller.breakers)
    gone = await running.change(NEIGHBOUR, "")

    assert came.ok, came.problems
    assert there
    assert shown
    assert key not in breakers
    assert gone.ok, gone.problems
    assert key not in running.service.readers
    assert 'target="batch"' not in running.page


async def test_a_target_whose_sources_change_is_read_anew_and_the_others_are_not(
    running: Reloading,
) -> None:
    kept = running.service.readers[Key("chat", "b")]
    source = "{kind: page, url: 'http://127.0.0.1:15', signals: {memory_rss_bytes: rss}}"

    outcome = await running.change(
        'id: a, url: "http://127.0.0.1:11"',
        f'id: a, url: "http://127.0.0.1:11", sources: [{source}]',
    )

    assert outcome.ok, outcome.problems
    companions = running.service.readers[Key("chat", "a")].companions
    assert [it.source.name for it in companions] == ["page:chat/a", "facts:chat/a"]
    assert running.service.readers[Key("chat", "b")] is kept
