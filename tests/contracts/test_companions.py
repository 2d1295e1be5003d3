"""What every kind of source beside an engine's page owes: on a good day, a bad one, under attack."""

from __future__ import annotations

import asyncio
import builtins
import io
import math
import os
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from collector.sources.protocols import Place, Source, SourceSettings, Tools
from collector.sources.series import MAX_PARTS
from collector.sources.settings import NeighbourConfig, SourceConfig
from detectors.records import Absence, Reading
from detectors.signals import READING_SIGNALS, SIGNALS, Kind
from tests.collector.sources.engine_server import a_scrape
from tests.collector.sources.servers import (
    NOW,
    Answer,
    bomb,
    dripping,
    endless,
    garbage,
    hanging_up,
    silence,
    text,
    zipped,
)
from tests.contracts.companions import CASES, Case, Damage, Where, nothing, world

DOCS = Path(__file__).parents[2] / "docs" / "sources"
OWN = frozenset({"up", "scrape_seconds"})
STATED = frozenset(  # what a server may have said of itself, in its log too
    {"request_slots", "kv_cache_capacity_tokens", "batch_token_budget", "context_tokens"}
)
TICK = 2.0**-10  # exact in binary, so that equal spans are equal


def kinds(union: object) -> dict[str, type[BaseModel]]:
    """Return the configurations of a union of settings by kind."""
    members = get_args(get_args(union)[0])
    return {it.model_fields["kind"].default: it for it in members}


COMPANIONS, NEIGHBOURS = kinds(SourceConfig), kinds(NeighbourConfig)
CONFIGS = {**COMPANIONS, **NEIGHBOURS}
PLACED = [
    pytest.param(case, beside, id=f"{case}-{'neighbour' if beside else 'companion'}")
    for case in CASES
    for beside in (False, True)
    if case.kind in (NEIGHBOURS if beside else COMPANIONS)
]
everywhere = pytest.mark.parametrize(("case", "beside"), PLACED)
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))


@dataclass
class Clock:
    """Intervals that go on by one tick with every look at the clock."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        self.seconds += TICK
        return self.seconds


def place(where: Where, beside: bool) -> Place:
    return Place("chat", "a", "" if beside else where.url, neighbour=beside)


@asynccontextmanager
async def built(
    config: SourceSettings, where: Where, *, beside: bool = False, within: float = 5.0
) -> AsyncIterator[Source]:
    """Build a source that has heard of a calm engine, and close it twice at the end."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        tools = Tools(client, lambda: NOW, Clock(), within)
        source = config.build(place(where, beside), tools)
        hear = getattr(source, "notice", None)
        if hear is not None:
            hear(a_scrape())
        try:
            yield source
        finally:
            await source.close()
            await source.close()


@contextmanager
def nothing_is_opened() -> Iterator[None]:
    """Fail on any file, connection or thread that is opened in the block."""

    def refuse(*arguments: object, **named: object) -> None:
        pytest.fail("something was opened")

    before = (set(os.listdir("/proc/self/fd")), threading.active_count())
    with pytest.MonkeyPatch.context() as patch:
        for where, name in (
            (builtins, "open"),
            (io, "open"),
            (os, "open"),
            (socket.socket, "connect"),
            (threading.Thread, "start"),
        ):
            patch.setattr(where, name, refuse)
        yield
    assert (set(os.listdir("/proc/self/fd")), threading.active_count()) == before


def check(reading: Reading, kind: str, offered: frozenset[str], *, beside: bool) -> None:
    """Assert what any reading owes; limits may come on top, where a server has stated them."""
    assert (reading.source, reading.tier, reading.target) == (kind, "chat", "a")
    assert reading.neighbour is beside
    assert (reading.at, reading.scrape_seconds >= 0.0) == (NOW, True)
    assert reading.values["up"] == float(reading.up)
    assert (reading.known - OWN) | STATED == offered | STATED
    assert offered <= reading.known <= {row.name for row in READING_SIGNALS}
    told = reading.values.keys() | reading.histograms.keys()
    assert not told & reading.absent.keys()
    assert all(isinstance(it, Absence) for it in reading.absent.values())
    assert all(SIGNALS[it].kind is not Kind.HISTOGRAM for it in reading.values)
    assert all(SIGNALS[it].kind is Kind.HISTOGRAM for it in reading.histograms)
    check_numbers(reading)
    assert all(it.code and it.text and it.signal in {*SIGNALS, ""} for it in reading.findings)
    assert len({(it.code, it.signal) for it in reading.findings}) == len(reading.findings)


def check_numbers(reading: Reading) -> None:
    assert all(math.isfinite(value) for value in reading.values.values())
    for signal, parts in reading.parts.items():
        assert SIGNALS[signal].label
        assert signal in reading.values
        assert len(parts) <= MAX_PARTS
        assert all(math.isfinite(value) for value in parts.values())
    for histogram in reading.histograms.values():
        assert list(histogram.counts) == sorted(histogram.counts)
        assert all(map(math.isfinite, (*histogram.counts, histogram.total, histogram.sum)))


async def read_of_nothing(case: Case, *, beside: bool = False) -> Reading:
    with nothing(case) as where:
        async with built(case.settings(where), where, beside=beside) as source:
            return await source.read()


def counted(reading: Reading) -> dict[str, float]:
    """Return what must never fall: counters, each of their parts, and totals of histograms."""
    names = [it for it in reading.values if SIGNALS[it].kind is Kind.COUNTER]
    found = {it: reading.values[it] for it in names}
    for name in names:
        parts = reading.parts.get(name, {})
        found |= {f"{name}/{part}": value for part, value in parts.items()}
    return found | {it: value.total for it, value in reading.histograms.items()}


def plain(reading: Reading) -> Reading:
    """Return a reading without its times."""
    values = {it: value for it, value in reading.values.items() if it not in OWN}
    return replace(reading, values=values, monotonic_seconds=0.0, scrape_seconds=0.0, noticed=())


def test_every_kind_that_can_be_configured_has_a_case() -> None:
    assert {case.kind for case in CASES} == set(CONFIGS)
    assert len({str(case) for case in CASES}) == len(CASES)


@every_config
def test_settings_are_frozen_closed_and_described(config: type[BaseModel]) -> None:
    interval = config.model_fields["interval"]

    assert config.model_config["frozen"]
    assert config.model_config["extra"] == "forbid"
    assert config.__doc__
    undescribed = [name for name, it in config.model_fields.items() if not it.description]
    assert undescribed == ["kind"]
    assert interval.default > 0
    for wrong in ({"nonsense": 1}, {"interval": 0}, {"interval": -1}):
        with pytest.raises(ValidationError):
            config.model_validate({"kind": config.model_fields["kind"].default, **wrong})


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_page_of_the_documentation_shows_the_kind(kind: str) -> None:
    shown = [
        page.name
        for page in DOCS.glob("*.md")
        for snippet in re.findall(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL)
        if re.search(rf"\bkind: {kind}\b", snippet)
    ]

    assert shown


@everywhere
def test_building_opens_nothing_and_names_the_kind_and_the_place(case: Case, beside: bool) -> None:
    client = httpx2.AsyncClient(trust_env=False)
    tools = Tools(client, lambda: NOW, Clock())
    with nothing(case) as where:
        config = case.settings(where)
        with nothing_is_opened():
            source = config.build(place(where, beside), tools)
            other = config.build(replace(place(where, beside), target="b"), tools)

    assert source.name == f"{case.kind}:chat/a"
    assert other.name == f"{case.kind}:chat/b"
    assert sum(source.stats().outcomes.values()) == 0


@pytest.mark.anyio
@everywhere
async def test_what_is_not_there_is_told_with_a_reason_for_every_signal(
    case: Case, beside: bool
) -> None:
    with nothing(case) as where:
        async with built(case.settings(where), where, beside=beside) as source:
            first = await source.read()
            again = await source.read()
            outcomes = source.stats().outcomes

    for reading in (first, again):
        check(reading, case.kind, frozenset(first.known - OWN), beside=beside)
        assert reading.absent
        assert reading.problem or set(reading.absent.values()) == {Absence.NO_DRIVER}
        assert len(reading.problem.split()) > 2 or not reading.problem
    assert again.monotonic_seconds > first.monotonic_seconds
    assert sum(outcomes.values()) >= 1


@pytest.mark.anyio
@everywhere
async def test_what_is_there_has_values_for_signals_that_are_offered_at_all_times(
    case: Case, beside: bool
) -> None:
    gone = await read_of_nothing(case, beside=beside)
    async with world(case) as found:
        async with built(case.settings(found.where), found.where, beside=beside) as source:
            reading = await source.read()
            stats = source.stats()

    check(reading, case.kind, frozenset(gone.known - OWN), beside=beside)
    assert reading.problem == ""
    assert plain(reading).values.keys() | reading.histograms.keys()
    assert sum(stats.outcomes.values()) == 1


@pytest.mark.anyio
@every_case
async def test_reading_twice_says_the_same(case: Case) -> None:
    async with world(case) as found:
        async with built(case.settings(found.where), found.where) as source:
            await source.read()  # some say what is new: once
            first, second = await source.read(), await source.read()

    assert plain(second) == plain(first)
    assert second.monotonic_seconds > first.monotonic_seconds
    assert (second.noticed, second.restarted) == ((), False)


@pytest.mark.anyio
@every_case
async def test_counters_never_fall_when_what_is_read_starts_anew(case: Case) -> None:
    async with world(case) as found:
        async with built(case.settings(found.where), found.where) as source:
            before = await source.read()
            found.become(case.after)
            after = await source.read()
            found.become(case.contents)
            again = await source.read()

    for earlier, later in ((before, after), (after, again)):
        fallen = {it for it, n in counted(earlier).items() if counted(later).get(it, -1.0) < n}
        assert fallen == set()


@pytest.mark.anyio
@every_case
async def test_what_comes_back_after_a_break_is_read_again(case: Case) -> None:
    async with world(case) as found:
        async with built(case.settings(found.where), found.where) as source:
            before = await source.read()
            if case.files:
                for name in case.contents:
                    (found.where.folder / name).unlink()
            else:
                found.answer = hanging_up
            lost = await source.read()
            found.answer = None
            found.become(case.contents)
            for _ in range(2):  # a file that is new is read from its beginning
                back = await source.read()

    check(lost, case.kind, frozenset(before.known - OWN) - STATED, beside=False)
    assert back.problem == ""
    assert {it for it, n in counted(before).items() if counted(back).get(it, -1.0) < n} == set()


def page_of_everything(line: bytes) -> Answer:
    return text(line * 1000)


DEEP = b"[" * 100_000
HOSTILE: dict[str, Callable[[], Answer]] = {
    "html": lambda: text(b"<!doctype html><html><body>Welcome</body></html>"),
    "list": lambda: text(b"[1, 2, null]"),
    "object": lambda: text(b'{"data": 7, "choices": [[]], "account_details": {"a": 1}}'),
    "deep json": lambda: text(DEEP),
    "number": lambda: text(b"1" + b"0" * 400),
    "nothing": lambda: text(b""),
    "nul": lambda: text(bytes(2000)),
    "endless": lambda: endless(100_000_000),
    "bomb": lambda: bomb(100_000_000),
    "half gzip": lambda: zipped(b"app_running 1\n" * 50, keep=12),
    "redirect": lambda: text(b"", status="302 Found", headers="Location: /\r\n"),
    "error": lambda: text(b"{}", status="500 Oops"),
    "no right": lambda: text(b"{}", status="401 No"),
    "too short": lambda: text(b"app_running 1\n", length=9000),
    "not http": lambda: garbage,
    "hangs up": lambda: hanging_up,
    "silent": lambda: silence,
    "drips": lambda: dripping,
}


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize("answer", HOSTILE)
@pytest.mark.parametrize("case", [it for it in CASES if not it.files], ids=str)
async def test_no_answer_of_a_server_is_raised_out_of_a_read(case: Case, answer: str) -> None:
    gone = await read_of_nothing(case)
    async with world(case) as found:
        found.answer = HOSTILE[answer]()
        async with built(case.settings(found.where), found.where, within=0.3) as source:
            reading = await source.read()

    check(reading, case.kind, frozenset(gone.known - OWN), beside=False)
    assert "Welcome" not in reading.problem


NUMBERS = ("NaN", "-1", "+Inf", "1e999", "", "9" * 400, "-0.0", "1e308", "0x10", "[", '"a"', "null")
PLACES = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(NUMBERS)), min_size=1, max_size=6)


def changed(places: list[tuple[float, str]]) -> Damage:
    """Return a damage that puts odd numbers in the place of some."""

    def damage(body: bytes) -> bytes:
        numbers = list(re.finditer(rb"(?<![\w.])[0-9][0-9.e+]*", body))
        chosen = {int(at * (len(numbers) - 1)): odd for at, odd in places} if numbers else {}
        for index in sorted(chosen, reverse=True):
            start, stop = numbers[index].span()
            body = body[:start] + chosen[index].encode() + body[stop:]
        return body

    return damage


def cut(share: float) -> Damage:
    return lambda body: body[: int(share * len(body))]


def instead(other: bytes) -> Damage:
    return lambda _: other


DAMAGES = st.one_of(
    st.builds(changed, PLACES),
    st.builds(cut, st.floats(0, 1)),
    st.builds(instead, st.binary(max_size=500)),
)


@pytest.mark.slow
@every_case
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(damages=st.lists(DAMAGES, min_size=1, max_size=3))
def test_nothing_that_is_spoilt_is_raised_out_of_a_read(case: Case, damages: list[Damage]) -> None:
    async def read() -> list[Reading]:
        async with world(case) as found:
            async with built(case.settings(found.where), found.where, within=1.0) as source:
                readings = []
                for damage in damages:
                    found.become(case.contents, damage)
                    readings.append(await source.read())
                found.become(case.contents)
                return [*readings, await source.read()]

    gone = asyncio.run(read_of_nothing(case))
    readings = asyncio.run(read())

    for reading in readings:
        check(reading, case.kind, frozenset(gone.known - OWN), beside=False)
    for earlier, later in zip(readings, readings[1:], strict=False):
        known = counted(earlier).keys() & counted(later).keys()
        assert {it for it in known if counted(later)[it] < counted(earlier)[it]} == set()
