"""`docs/detectors.md`, made from the detectors' docstrings and their settings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import get_args, get_type_hints

from pydantic import BaseModel

from collector.config.reference import default_words, sections, type_words
from detectors import ReadingConfig, TickConfig, default_detectors

_HEAD = """\
# Detectors

This page is made from the code (`fusewire render reference`): do not edit it. What stands behind
the numbers is in [statistics.md](statistics.md), where settings are written in
[configuration.md](configuration.md).

A detector takes readings (one completed scrape of one target) or ticks (counts of the generations
of some seconds) and says `unknown`, `ok`, `warning` or `critical` of each stream, with a reason.
Not knowing is never ok. A tier that names no detectors has these:
"""
_INPUT: Mapping[bool, str] = {True: "each closed tick", False: "each scrape of a target"}
# The parts of a docstring, each at the start of a line; what follows belongs to the part.
_PART = re.compile(
    r"^(Inputs?|Parameters?|Rules|Statistic|Verdict|Smallest change seen)(?=[:,])", re.MULTILINE
)
_BOUNDS: Mapping[str, str] = {  # of a JSON schema
    "minimum": "from {:,}",
    "exclusiveMinimum": "above {:,}",
    "maximum": "to {:,}",
    "exclusiveMaximum": "below {:,}",
    "maxLength": "up to {:,} characters",
}


def detectors_page() -> str:
    """Return the Markdown page of every kind of detector."""
    return "\n".join([_HEAD, _default_set(), *(_section(config) for config in kinds())])


def kinds() -> tuple[type[BaseModel], ...]:
    """Return the settings of every kind of detector."""
    return (*get_args(ReadingConfig), *get_args(TickConfig))


def detector_of(config: type[BaseModel]) -> type:
    """Return the class of the detector that settings of this class build."""
    made: type = get_type_hints(vars(config)["build"])["return"]
    return made


def _default_set() -> str:
    rows = ["| Name | Kind | Judges | Signals |", "|---|---|---|---|"]
    for config in default_detectors():
        built = config.build()
        signals = ", ".join(f"`{signal}`" for signal in sorted(built.signals))
        judges = _INPUT[isinstance(config, TickConfig)]
        rows.append(
            f"| `{built.name}` | [`{config.kind}`](#{config.kind}) | {judges} | {signals} |"
        )
    return "\n".join(rows) + "\n"


def _section(config: type[BaseModel]) -> str:
    text = inspect.cleandoc(detector_of(config).__doc__ or "")
    first, *paragraphs = text.split("\n\n")
    parts = [f"## {config.model_fields['kind'].default}", " ".join(first.split())]
    for paragraph in paragraphs:
        if paragraph.startswith(">>>"):
            parts.append(f"```python\n{paragraph}\n```")
        else:
            parts.append("\n".join(_items(paragraph)))
    return "\n\n".join([*parts, _table(config)]) + "\n"


def _items(paragraph: str) -> Iterator[str]:
    """Yield a paragraph of a docstring as list items, one a part."""
    if paragraph.startswith("*Trade-offs*"):
        yield "**Trade-offs**" + " ".join(paragraph.removeprefix("*Trade-offs*").split())
        return
    before, *found = _PART.split(paragraph)
    if before.strip():
        yield " ".join(before.split()) + "\n"
    for label, text in zip(found[::2], found[1::2], strict=True):
        yield f"- **{label}**{' '.join(text.split())}"


def _table(config: type[BaseModel]) -> str:
    rows = ["| Parameter | Type | Range | Default | Meaning |", "|---|---|---|---|---|"]
    for path, model in sections(config, ""):
        schema = model.model_json_schema()["properties"]
        for name, field in model.model_fields.items():
            if name == "kind":
                continue
            key = f"`{path}.{name}`" if path else f"`{name}`"
            cells = (key, type_words(field), range_words(schema[name]), default_words(field))
            meaning = field.description or ""
            rows.append("| " + " | ".join(c.replace("|", "\\|") for c in (*cells, meaning)) + " |")
    return "\n".join(rows)


def range_words(schema: Mapping[str, object]) -> str:
    """Return the range of a parameter in words, "-" where it has none.

    >>> range_words({"minimum": 2, "maximum": 100}), range_words({"type": "string"})
    ('from 2 to 100', '-')
    """
    words = [words.format(schema[bound]) for bound, words in _BOUNDS.items() if bound in schema]
    return " ".join(words) or "-"
