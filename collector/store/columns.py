"""Column types that mean the same on SQLite and PostgreSQL.

SQLite drops time zones, does not check lengths and stores NaN as NULL; PostgreSQL refuses NUL
characters and NaN in JSON. These types close the gaps at the door, on both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum as PythonEnum
from typing import Final, TypeVar

import msgspec
import numpy as np
from sqlalchemy import DateTime, Dialect, Enum, String, Text, TypeDecorator

T = TypeVar("T")
TIER_LENGTH: Final = 128
TARGET_LENGTH: Final = 255
SCOPE_LENGTH: Final = 264  # `segment:` and a name
CODE_LENGTH: Final = 64  # signal, detector, cause, variant, kind
PERSON_LENGTH: Final = 128
PROSE_LENGTH: Final = 2000


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC datetime on every database; a naive one is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            msg = f"{value.isoformat()} has no time zone; pass an aware datetime in UTC"
            raise ValueError(msg)
        in_utc = value.astimezone(UTC)
        return in_utc.replace(tzinfo=None) if dialect.name == "sqlite" else in_utc

    def process_result_value(self, value: datetime | None, _: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Name(TypeDecorator[str]):
    """A bounded name that identifies something: too long or with a NUL is refused, never cut."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        if value is None:
            return None
        if len(value) > self.length:
            msg = f"name {value[:40]!r}… has {len(value)} characters, at most {self.length} fit"
            raise ValueError(msg)
        if "\0" in value:
            msg = f"name {value!r} holds a NUL character; names are printable text"
            raise ValueError(msg)
        return value


class Prose(TypeDecorator[str]):
    """A sentence for people: cut at its length, and cleaned of what a database refuses."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        return None if value is None else clean(value)[: self.length]


class Numbers(TypeDecorator[Mapping[str, float]]):
    """Named numbers as JSON text; NaN and infinities survive as strings."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, float] | None, _: Dialect) -> str | None:
        return None if value is None else to_json(dict(value))

    def process_result_value(self, value: str | None, _: Dialect) -> Mapping[str, float] | None:
        return None if value is None else from_json(value, dict[str, float])


class Words(TypeDecorator[tuple[str, ...]]):
    """A few short words as JSON text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, _: Dialect) -> str | None:
        return None if value is None else to_json(value)

    def process_result_value(self, value: str | None, _: Dialect) -> tuple[str, ...] | None:
        return None if value is None else from_json(value, tuple[str, ...])


def text_enum(kind: type[PythonEnum]) -> Enum:
    """Return the type of a column that keeps the enum's values as text on every database."""
    return Enum(
        kind,
        native_enum=False,
        create_constraint=False,
        length=16,
        values_callable=lambda members: [member.value for member in members],
    )


def clean(text: str) -> str:
    """Return `text` without NUL and without halves of surrogate pairs, which no database keeps."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def to_json(value: object) -> str:
    """Return records as JSON with sorted keys; the same record gives the same text.

    NaN and infinities, which JSON lacks, become the strings `nan`, `inf` and `-inf`; `from_json`
    turns them back.
    """
    plain = _finite(msgspec.to_builtins(value, enc_hook=_plain))
    return msgspec.json.encode(plain, order="sorted").decode()


def from_json(text: str, kind: type[T]) -> T:
    """Read back what `to_json` wrote.

    Raises:
        msgspec.ValidationError: If the text is not of this kind.
    """
    return msgspec.convert(msgspec.json.decode(text), kind, strict=False)


def _plain(value: object) -> object:
    """Turn what msgspec does not know into what it does."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    msg = f"a {type(value).__name__} cannot be kept as JSON; expected numbers, text and records"
    raise TypeError(msg)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
