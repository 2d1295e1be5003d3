"""The recordings in this package: pages of an engine, and requests with their answers."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from random import Random

import msgspec

KV_FULL = "scrapes-0.32.0-kvfull.jsonl.xz"
LOAD = "scrapes-0.32.0-load.jsonl.xz"
BASELINE = "a-baseline"
JSON_BLOBS = "b-json"
HOT = "c-temp1.5"
SETS = (BASELINE, JSON_BLOBS, HOT)
_FOLDER = "recordings"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One recorded request (bytes as sent) and the answer it got (bytes as received)."""

    prompt: str
    request: bytes
    response: bytes
    response_id: str


class _Scrape(msgspec.Struct):
    body: str


class _Request(msgspec.Struct):
    prompt: str


class _Response(msgspec.Struct):
    id: str


class _Line(msgspec.Struct):
    request: msgspec.Raw
    response: msgspec.Raw


def read_pages(name: str) -> list[str]:
    """Return the recorded bodies of `GET /metrics` (`KV_FULL`, `LOAD`), in order of time."""
    lines = lzma.decompress(_read(name)).splitlines()
    return [msgspec.json.decode(line, type=_Scrape).body for line in lines]


def read_exchanges(name: str) -> list[Exchange]:
    """Return the recorded completions of the set `name` (one of `SETS`)."""
    lines = gzip.decompress(_read(f"{name}.jsonl.gz")).splitlines()
    return [_exchange(line) for line in lines if line]


def _read(name: str) -> bytes:
    return files("collector.demo").joinpath(_FOLDER, name).read_bytes()


def _exchange(line: bytes) -> Exchange:
    raw = msgspec.json.decode(line, type=_Line)
    request = bytes(raw.request)
    response = bytes(raw.response)
    return Exchange(
        prompt=msgspec.json.decode(request, type=_Request).prompt,
        request=request,
        response=response,
        response_id=msgspec.json.decode(response, type=_Response).id,
    )


class Answers:
    """Answers a prompt from the recordings, drawn with replacement.

    The set in force comes first; a prompt that it does not hold is answered from whichever set
    does, and an unknown prompt by any answer of the set in force.
    """

    def __init__(self, sets: Mapping[str, Sequence[Exchange]], *, rng: Random) -> None:
        self._all = {name: tuple(exchanges) for name, exchanges in sets.items()}
        self._by_prompt = {name: _by_prompt(exchanges) for name, exchanges in sets.items()}
        self._rng = rng
        self._drawn = 0

    @property
    def sets(self) -> tuple[str, ...]:
        return tuple(self._all)

    def draw(self, prompt: str, *, in_force: str) -> bytes:
        """Return the bytes of one recorded answer, under an id of its own.

        Raises:
            KeyError: If there is no set `in_force`.
        """
        chosen = self._rng.choice(self._candidates(prompt, in_force))
        self._drawn += 1
        fresh = f"cmpl-{self._rng.getrandbits(32):08x}{self._drawn:08x}"
        return chosen.response.replace(chosen.response_id.encode(), fresh.encode(), 1)

    def _candidates(self, prompt: str, in_force: str) -> tuple[Exchange, ...]:
        first = self._by_prompt[in_force].get(prompt)
        if first:
            return first
        found = (known[prompt] for known in self._by_prompt.values() if prompt in known)
        return next(found, self._all[in_force])


def _by_prompt(exchanges: Sequence[Exchange]) -> dict[str, tuple[Exchange, ...]]:
    grouped: dict[str, tuple[Exchange, ...]] = {}
    for exchange in exchanges:
        grouped[exchange.prompt] = (*grouped.get(exchange.prompt, ()), exchange)
    return grouped
