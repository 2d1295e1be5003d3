"""Names of models as they may be shown: without what a path gives away, and of bounded length."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

SHORT: Final = 80  # characters of a value that is shown; longer ones end in a hash
_PARTS_OF_AN_ID: Final = 2  # `owner/name`; more is a path
_DIGITS: Final = 8


def short_name(text: str) -> str:
    """Return a model's name without what a path may give away, and of bounded length.

    A served name and a repository stay; a path becomes its last part and a hash of the whole.

    >>> short_name("tiny"), short_name("owner/model-7b")
    ('tiny', 'owner/model-7b')
    >>> short_name("/srv/secret/models/tiny")
    'tiny#605938ea'
    """
    text = text.strip()
    if not text:
        return ""
    parts = [part for part in text.replace("\\", "/").split("/") if part]
    plain = not text.startswith(("/", ".", "~")) and "\\" not in text and "://" not in text
    if plain and len(parts) <= _PARTS_OF_AN_ID:
        return shortened(text)
    name = parts[-1] if parts else ""
    return f"{_printable(name)[: SHORT - _DIGITS - 1]}#{digest(text)}"


def shortened(text: str) -> str:
    """Return `text` if it is short, else its start and a hash of the whole."""
    shown = _printable(text)
    return shown if len(shown) <= SHORT else f"{shown[: SHORT - _DIGITS - 1]}#{digest(text)}"


def digest(value: object) -> str:
    """Return a short hash of decoded JSON or text; equal values give equal hashes."""
    raw = msgspec.json.encode(value, order="sorted")
    return hashlib.blake2b(raw, digest_size=_DIGITS // 2).hexdigest()


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)
