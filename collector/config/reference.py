"""`docs/configuration.md`, made from the models: every key, its type, default and meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from collector.config.models import Config
from collector.values import Kind, Listen, duration_text

_HEAD = """\
# Configuration

One YAML file, by default `fusewire.yaml`; `fusewire check-config` checks it. This page is made
from the code (`fusewire render reference`): do not edit it.

The smallest useful file, complete:

```yaml
tiers:
  chat:
    targets: [http://127.0.0.1:8000]
```

- **Strict.** Unknown keys, keys written twice and values of the wrong type are refused, all at
  once, each with its line and a remedy.
- **Durations** are written with a unit: `250ms`, `5s`, `2m`, `24h`, `35d`. Keys whose names end in
  `_seconds` take a plain number of seconds.
- **Environment.** `${NAME}` in text is replaced; a name that is not set is an error; `$${` stands
  for `${`. What comes from the environment is text.
- **Secrets** come from `*_file` or `${NAME}`. A secret file may be readable by everyone
  (Kubernetes mounts them so), but not writable by everyone. Secrets never appear in messages.
- **Relative paths**, also of a SQLite store, are relative to the folder of the file.
- **YAML** is read as JSON would be: `yes`, `no`, `on` and `off` are text, numbers are decimal.
- **Detectors**: what each sees, and where it lies, is in [detectors.md](detectors.md).
- **Reload.** SIGHUP or `POST /-/reload` swaps the file whole, or keeps the old one and says why.
"""

_NUMBERS: Mapping[object, str] = {int: "whole number", float: "number", bool: "true or false"}
_WORDS: Mapping[object, str] = {**_NUMBERS, str: "text", Path: "path", NoneType: "nothing"}


def configuration_page() -> str:
    """Return the Markdown page of every configuration key."""
    parts = [_HEAD]
    for path, model in sections(Config, ""):
        title = f"`{path}`" if path else "Top level"
        parts.append(f"## {title}\n\n{_first_paragraph(model)}\n\n{_table(model)}\n")
    return "\n".join(parts)


def sections(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every mapping of the file, outer before inner, with its path."""
    yield path, model
    for name, field in model.model_fields.items():
        here = f"{path}.{name}" if path else name
        for suffix, inner in _models(field.annotation):
            yield from sections(inner, here + suffix)


def _models(shape: object) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the models inside a type with what leads to them: `.NAME`, `[]`, `[kind: x]`."""
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        yield "", shape
        return
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        yield from _models(arguments[0])
    elif origin in {Union, UnionType}:
        for option in arguments:
            for suffix, model in _models(option):
                kind = model.model_fields.get("kind")
                yield (f" kind {kind.default}" if kind else suffix), model
    elif origin is tuple:
        for suffix, model in _models(arguments[0]):
            yield f"[]{suffix}", model
    elif origin is Mapping:
        for suffix, model in _models(arguments[1]):
            yield f".NAME{suffix}", model


def _first_paragraph(model: type[BaseModel]) -> str:
    text = (model.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(text.split())


def _table(model: type[BaseModel]) -> str:
    rows = ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        cells = (f"`{name}`", type_words(field), default_words(field), field.description or "")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def type_words(field: FieldInfo) -> str:
    """Return the type of a key in words."""
    kinds = [entry.words for entry in field.metadata if isinstance(entry, Kind)]
    return kinds[0] if kinds else _words(field.annotation)


def _words(shape: object) -> str:
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        return "mapping"
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        kinds = [entry.words for entry in arguments[1:] if isinstance(entry, Kind)]
        return kinds[0] if kinds else _words(arguments[0])
    if origin is None:
        return _WORDS.get(shape, "value")
    return _compound_words(origin, arguments)


def _compound_words(origin: object, arguments: tuple[object, ...]) -> str:
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in {Union, UnionType}:
        words = dict.fromkeys(_words(option) for option in arguments if option is not NoneType)
        return " or ".join(words)
    if origin in {tuple, frozenset, list}:
        return f"list of {_words(arguments[0])}s"
    return f"mapping of {_words(arguments[-1])}s"


def default_words(field: FieldInfo) -> str:
    """Return the default of a key as a configuration would write it."""
    if field.is_required():
        return "required"
    if field.default_factory is not None or field.default is PydanticUndefined:
        return "see there" if type_words(field).startswith(("mapping", "list")) else "computed"
    return _default(field.default, duration=type_words(field) == "duration")


def _default(value: Any, *, duration: bool) -> str:  # noqa: ANN401  # any default of any field
    if value is None or value in ((), ""):
        return "none"
    if duration:
        return f"`{duration_text(float(value))}`"
    if isinstance(value, Listen | Path):
        return f"`{value}`"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"`{json.dumps(list(value))}`"
    text = json.dumps(value) if isinstance(value, bool | int | float) else str(value)
    return f"`{text}`"
