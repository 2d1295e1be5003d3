"""What every kind of source beside an engine's page owes: on a good day, a bad one, an evil one."""

from __future__ import annotations

import builtins
import io
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import httpx2
import pytest
from pydantic import BaseModel, ValidationError

from collector.sources.protocols import Tools
from collector.sources.settings import NeighbourConfig, SourceConfig
from detectors.records import Absence
from tests.collector.sources.servers import (
    NOW,
    hanging_up,
)
from tests.contracts.companion_checks import (
    OWN,
    STATED,
    Clock,
    built,
    check,
    counted,
    every_case,
    place,
    plain,
    read_of_nothing,
    standing,
)
from tests.contracts.companions import CASES, Case, nothing

DOCS = Path(__file__).parents[2] / "docs" / "sources"
NOTHING_THERE = frozenset({Absence.NO_DRIVER, Absence.NO_DATA})  # a machine without a GPU


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
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))


@contextmanager
def nothing_is_opened() -> Iterator[None]:
    """Fail on any file, connection or thread that is opened in the block."""

    def refuse(*arguments: object, **named: object) -> None:
        pytest.fail("something was opened")

    before = (set(Path("/proc/self/fd").iterdir()), threading.active_count())
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
    assert (set(Path("/proc/self/fd").iterdir()), threading.active_count()) == before


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
    client = httpx2.AsyncClient(trust_env=False, verify=False)
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
        assert reading.problem or set(reading.absent.values()) <= NOTHING_THERE
        assert len(reading.problem.split()) > 2 or not reading.problem
    assert again.monotonic_seconds > first.monotonic_seconds
    assert sum(outcomes.values()) >= 1


@pytest.mark.anyio
@everywhere
async def test_what_is_there_has_values_for_signals_that_are_offered_at_all_times(
    case: Case, beside: bool
) -> None:
    gone = await read_of_nothing(case, beside=beside)
    async with standing(case, beside=beside) as (_, source):
        reading = await source.read()
        stats = source.stats()

    check(reading, case.kind, frozenset(gone.known - OWN), beside=beside)
    assert reading.problem == ""
    assert plain(reading).values.keys() | reading.histograms.keys()
    assert sum(stats.outcomes.values()) == 1


@pytest.mark.anyio
@every_case
async def test_reading_twice_says_the_same(case: Case) -> None:
    async with standing(case) as (_, source):
        await source.read()  # some say what is new: once
        first, second = await source.read(), await source.read()

    assert plain(second) == plain(first)
    assert second.monotonic_seconds > first.monotonic_seconds
    assert (second.noticed, second.restarted) == ((), False)


@pytest.mark.anyio
@every_case
async def test_counters_never_fall_when_what_is_read_starts_anew(case: Case) -> None:
    async with standing(case) as (found, source):
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
    async with standing(case) as (found, source):
        before = await source.read()
        if case.files:
            for name in case.contents:
                (found.where.folder / name).unlink()
        else:
            found.answer = hanging_up
        lost = await source.read()
        found.answer = None
        found.become(case.contents)
        await source.read()  # a file that is new is read from its beginning
        back = await source.read()

    check(lost, case.kind, frozenset(before.known - OWN) - STATED, beside=False)
    assert back.problem == ""
    assert {it for it, n in counted(before).items() if counted(back).get(it, -1.0) < n} == set()
