"""No source beside an engine's page lets the answers of others become faults of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detectors.records import Reading
from tests.collector.sources.servers import (
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
from tests.contracts.companion_checks import (
    OWN,
    check,
    counted,
    every_case,
    read_of_nothing,
    standing,
)
from tests.contracts.companions import CASES, Case, Damage

pytestmark = pytest.mark.slow

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
@pytest.mark.parametrize("answer", HOSTILE)
@pytest.mark.parametrize("case", [it for it in CASES if not it.files], ids=str)
async def test_no_answer_of_a_server_is_raised_out_of_a_read(case: Case, answer: str) -> None:
    gone = await read_of_nothing(case)
    async with standing(case, within=0.15) as (found, source):
        found.answer = HOSTILE[answer]()
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


@pytest.mark.anyio
@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
@every_case
async def test_no_odd_number_is_raised_out_of_a_read(case: Case, at: float) -> None:
    gone = await read_of_nothing(case)
    async with standing(case, within=0.5) as (found, source):
        for odd in NUMBERS:
            found.become(case.contents, changed([(at, odd)]))
            check(await source.read(), case.kind, frozenset(gone.known - OWN), beside=False)


def cut(share: float) -> Damage:
    return lambda body: body[: int(share * len(body))]


def instead(other: bytes) -> Damage:
    return lambda _: other


DAMAGES = st.one_of(
    st.builds(changed, PLACES),
    st.builds(cut, st.floats(0, 1)),
    st.builds(instead, st.binary(max_size=500)),
)


@every_case
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(damages=st.lists(DAMAGES, min_size=1, max_size=3))
def test_nothing_that_is_spoilt_is_raised_out_of_a_read(case: Case, damages: list[Damage]) -> None:
    async def read() -> list[Reading]:
        async with standing(case, within=0.2) as (found, source):
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
    for earlier, later in pairwise(readings):
        known = counted(earlier).keys() & counted(later).keys()
        assert {it for it in known if counted(later)[it] < counted(earlier)[it]} == set()
