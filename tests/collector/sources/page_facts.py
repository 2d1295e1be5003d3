"""A metrics page as prometheus-client reads it line by line, for deriving what it must give.

Nothing here uses Fusewire's parser or alias table; a line that the library refuses is left out.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

Labels: TypeAlias = dict[str, str]
Row: TypeAlias = tuple[Labels, float]


@dataclass
class Facts:
    """A page as prometheus-client reads it, line by line."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    cut: bool = False

    def get(self, name: str) -> list[Row]:
        return self.rows.get(name, [])


def normal(name: str) -> str:
    return re.sub(r"^(ray_)?(kserve_)?", "", name).replace(":", "_", 1)


def read_line(line: str) -> Sample | None:
    """Return what prometheus-client makes of one sample line, None if it refuses it."""
    try:
        families = list(text_string_to_metric_families(line + "\n"))
    except (ValueError, IndexError, KeyError):
        return None
    found = [sample for family in families for sample in family.samples]
    return found[0] if len(found) == 1 else None


def facts_of(text: str) -> Facts:
    facts = Facts()
    lines = text.split("\n")
    facts.cut = lines.pop() != ""
    for line in lines:
        if line.strip() == "# EOF":
            break
        header = re.match(r"#\s*(TYPE|HELP)\s+(\S+)\s*(\S*)", line)
        if header:
            word = header[3] if header[1] == "TYPE" else ""
            name = normal(header[2])
            for known in (name, name + "_total") if word == "counter" else (name,):
                facts.typed[known] = word or facts.typed.get(known, "")
        elif line.strip() and not line.startswith("#"):
            _add(facts, line)
    return facts


def _add(facts: Facts, line: str) -> None:
    sample = read_line(line)
    if sample is None:
        facts.refused.add(normal(line.partition("{")[0].strip()))
    elif "server" not in sample.labels and "worker_addr" not in sample.labels:
        facts.rows.setdefault(normal(sample.name), []).append((sample.labels, sample.value))


def by_series(rows: list[Row]) -> dict[str, Row]:
    """Merge copies of several processes by maximum."""
    merged: dict[str, Row] = {}
    for labels, value in rows:
        kept = {name: text for name, text in labels.items() if name != "pid"}
        key = json.dumps(kept, sort_keys=True)
        if key not in merged or value > merged[key][1]:
            merged[key] = (kept, value)
    return merged


def numbers(rows: list[Row]) -> list[float]:
    return [value for _, value in by_series(rows).values()]


def total(facts: Facts, *names: str) -> float | None:
    """Return the sum over the first family that has samples."""
    for name in names:
        found = numbers(facts.get(name))
        if found:
            return sum(found) if min(found) >= 0 else None
    return None


def histogram(facts: Facts, names: tuple[str, ...], **only: str) -> list[float] | None:
    """Return [finite bounds, total, sum, cumulative counts...] of the first family there."""
    for name in names:
        rows = [row for row in facts.get(name + "_bucket") if only.items() <= row[0].items()]
        sums = [row for row in facts.get(name + "_sum") if only.items() <= row[0].items()]
        counts = [row for row in facts.get(name + "_count") if only.items() <= row[0].items()]
        if not (rows or sums or counts):
            continue
        word = facts.typed.get(name, "histogram")
        if word == "summary" and sums and counts:
            return [0.0, sum(numbers(counts)), sum(numbers(sums))]
        if word not in {"histogram", "untyped", ""}:
            return None
        if not (rows and sums and counts):
            return None
        buckets: dict[float, float] = {}
        for labels, value in by_series(rows).values():
            bound = float(labels["le"])
            buckets[bound] = buckets.get(bound, 0.0) + value
        finite = sorted(bound for bound in buckets if bound < math.inf)
        whole = [float(len(finite)), sum(numbers(counts)), sum(numbers(sums))]
        return whole + [buckets[bound] for bound in finite]
    return None


def quotient(facts: Facts, *pairs: tuple[str, str]) -> float | None:
    for over, of in pairs:
        if facts.get(over) and facts.get(of):
            below = sum(numbers(facts.get(of)))
            return sum(numbers(facts.get(over))) / below if below else None
    return None
