"""Reads the recorded generations, and makes lines of `POST /v1/ingest/generations` of them."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collector.ingest.records import Defaults, TierNames

FOLDER = Path(__file__).parents[2] / "fixtures" / "generations"
ARRIVAL = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)
DEFAULTS = Defaults(
    arrival=ARRIVAL,
    tiers={"chat": TierNames(frozenset({"a", "b"}), frozenset({"upstream-1"}))},
    tier="chat",
)


@dataclass(frozen=True)
class Recorded:
    """One body with the request that caused it."""

    name: str
    request: dict[str, Any]
    body: str

    @property
    def response(self) -> Any:
        """The body as a line carries it: parsed if it is one JSON value, else as text."""
        try:
            return json.loads(self.body)
        except ValueError:
            return self.body

    def line(self, **members: Any) -> bytes:
        made = {"request": self.request, "response": self.response, **members}
        return json.dumps(made).encode()


def recorded() -> list[Recorded]:
    """Return all recorded bodies."""
    found = []
    for path in sorted(FOLDER.glob("*.jsonl.xz")):
        if path.name.startswith("corpus-"):
            continue
        for text in lzma.decompress(path.read_bytes()).decode().split("\n"):
            if text:
                row = json.loads(text)
                found.append(Recorded(row["name"], row.get("request", {}), row["body"]))
    return found


def the(name: str) -> Recorded:
    """Return the recorded body `name`."""
    return next(one for one in recorded() if one.name == name)


def corpus(name: str) -> bytes:
    """Return the NDJSON of a corpus."""
    return lzma.decompress((FOLDER / f"corpus-{name}.jsonl.xz").read_bytes())


def replayed() -> Defaults:
    """Return the defaults of a replay: the recorded times are taken as they are."""
    return replace(DEFAULTS, live=False)
