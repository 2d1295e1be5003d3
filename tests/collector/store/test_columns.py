"""Column types mean the same on both databases."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.orm import Session

from alerts.breaker.records import Breaker, Key
from collector.store import breakers
from collector.store.columns import from_json, to_json
from collector.store.models import BreakerRow, CheckpointRow, VerdictRow
from collector.store.session import StoreError
from collector.store.store import Store
from tests.builders import START

pytestmark = pytest.mark.anyio


def a_checkpoint(made_at: datetime, place: str = "here") -> CheckpointRow:
    return CheckpointRow(number=1, hash="x", made_at=made_at, place=place)


async def test_a_moment_comes_back_aware_and_in_utc(store: Store) -> None:
    east = timezone(timedelta(hours=2))
    moment = datetime(2026, 3, 1, 1, 30, 0, 123_456, tzinfo=east)
    await store.write(Session.add, a_checkpoint(moment))

    row = await store.read(Session.get_one, CheckpointRow, 1)

    assert row.made_at == moment
    assert row.made_at.utcoffset() == timedelta(0)


async def test_a_naive_moment_is_refused(store: Store) -> None:
    naive = datetime(2026, 3, 1)  # noqa: DTZ001  # naive on purpose

    with pytest.raises(StoreError, match="has no time zone"):
        await store.write(Session.add, a_checkpoint(naive))


async def test_an_enum_is_kept_as_its_value(store: Store) -> None:
    await store.write(breakers.put, Breaker(Key("chat")))

    def stored(session: Session) -> object:
        return session.scalar(text("SELECT state FROM breaker"))

    assert await store.read(stored) == "closed"


async def test_a_name_that_is_too_long_is_refused_on_every_database(store: Store) -> None:
    with pytest.raises(StoreError, match="has 200 characters, at most 128 fit"):
        await store.write(breakers.put, Breaker(Key("x" * 200)))


async def test_a_name_with_a_nul_is_refused_on_every_database(store: Store) -> None:
    with pytest.raises(StoreError, match="NUL character"):
        await store.write(breakers.put, Breaker(Key("a\0b")))


async def test_prose_is_cut_and_cleaned_instead_of_refused(store: Store) -> None:
    await store.write(Session.add, a_checkpoint(START, "a\0b\ud800" + "x" * 5000))

    row = await store.read(Session.get_one, CheckpointRow, 1)

    assert row.place.startswith("a\N{REPLACEMENT CHARACTER}b?xx")
    assert len(row.place) == 2000


def test_numbers_without_a_json_form_survive() -> None:
    numbers = MappingProxyType({"a": math.inf, "b": -math.inf, "c": np.float64(0.5)})

    back = from_json(to_json(numbers), dict[str, float])

    assert back == {"a": math.inf, "b": -math.inf, "c": 0.5}
    assert math.isnan(from_json(to_json({"d": math.nan}), dict[str, float])["d"])


@given(st.dictionaries(st.text(max_size=8), st.floats(allow_nan=False), max_size=5))
def test_the_same_numbers_give_the_same_text(numbers: dict[str, float]) -> None:
    turned = dict(reversed(list(numbers.items())))

    assert to_json(numbers) == to_json(turned)


def test_what_is_neither_number_nor_record_is_refused() -> None:
    with pytest.raises(TypeError, match="a function cannot be kept"):
        to_json({"a": to_json})


def test_every_field_of_a_breaker_has_a_column() -> None:
    fields = set(Breaker.__dataclass_fields__) - {"key"}

    assert set(BreakerRow.__table__.columns.keys()) == fields | {"tier", "target"}
    assert "details" in VerdictRow.__table__.columns
