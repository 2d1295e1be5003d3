"""From the file to `Config`: parse, fill in, validate, cross-check, report everything at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from collector.config.checks import check, items, mapping, read_secret
from collector.config.document import Document, Tree, read_document
from collector.config.models import Config
from collector.config.problems import ConfigError, Place
from collector.config.translation import report
from collector.sources.engines import signal_named

_SQLITE = "sqlite:///"


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """Read, check and return a configuration.

    Relative paths (also of a SQLite store) are relative to the folder of the file, so that every
    command means the same ones wherever it runs.

    Args:
        path: The YAML file.
        environ: Where `${NAME}` is looked up.

    Raises:
        ConfigError: With every problem found, ordered by line.
    """
    document = read_document(path, environ)
    folder = path.resolve().parent
    _shorthands(document)
    _engine_names(document)
    _absolute_paths(document, folder)
    _secrets(document)
    check(document)
    config: Config | None = None
    try:
        config = Config.model_validate_json(json.dumps(document.data), strict=True)
    except ValidationError as error:
        report(document, Config, error)
    if document.problems or config is None:
        ordered = sorted(document.problems, key=lambda problem: (problem.line or 0, problem.path))
        raise ConfigError(ordered, str(path))
    return _with_snapshot(config, folder)


def _shorthands(document: Document) -> None:
    """Write bare target URLs out as mappings; their text stays known under `url`."""
    for name, tier in mapping(mapping(document.data).get("tiers")).items():
        targets = items(mapping(tier).get("targets"))
        for index, target in enumerate(targets):
            place: Place = ("tiers", name, "targets", index)
            if isinstance(target, str):
                targets[index] = {"url": target}
                document.raw[*place, "url"] = document.raw.pop(place)


def _engine_names(document: Document) -> None:
    """Write our signal for an engine's own name of it (`vllm:num_requests_waiting`)."""
    for tier in mapping(mapping(document.data).get("tiers")).values():
        for item in items(mapping(tier).get("detectors")):
            detector = mapping(item)
            for holder, key in (
                (detector, "signal"),
                (detector, "divisor"),
                (mapping(detector.get("when")), "signal"),
            ):
                name = holder.get(key)
                if isinstance(name, str):
                    holder[key] = signal_named(name) or name


def _absolute_paths(document: Document, folder: Path) -> None:
    data = mapping(document.data)
    for key in ("snapshot", "token_file"):
        _resolve(data, key, folder)
    for webhook in mapping(data.get("webhooks")).values():
        for key in ("secret_file", "previous_secret_file"):
            _resolve(mapping(webhook), key, folder)
    for followed in items(mapping(data.get("ingest")).get("files")):
        _resolve(mapping(followed), "path", folder)
    store = data.setdefault("store", f"{_SQLITE}fusewire.db")
    if isinstance(store, str) and store.startswith(_SQLITE) and len(store) > len(_SQLITE):
        file = store.removeprefix(_SQLITE)
        if not file.startswith(":memory:"):
            data["store"] = _SQLITE + str(folder / file)


def _resolve(holder: dict[str, Tree], key: str, folder: Path) -> None:
    value = holder.get(key)
    if isinstance(value, str) and value:
        holder[key] = str(folder / value)


def _secrets(document: Document) -> None:
    """Put the content of `*secret_file` where the secret belongs."""
    for name, item in mapping(mapping(document.data).get("webhooks")).items():
        webhook = mapping(item)
        for key in ("secret", "previous_secret"):
            place: Place = ("webhooks", name, f"{key}_file")
            path = webhook.get(f"{key}_file")
            if not isinstance(path, str):
                continue
            if webhook.get(key) is not None:
                document.report(place, f"both {key} and {key}_file are given", "remove one")
                continue
            text = read_secret(document, place, Path(path))
            if text is not None:
                webhook[key] = text
                document.lines[*place[:-1], key] = document.lines[place]


def _with_snapshot(config: Config, folder: Path) -> Config:
    if config.snapshot is not None:
        return config
    store = config.store
    file = Path(store.removeprefix(_SQLITE)) if store.startswith(_SQLITE) else folder / "fusewire"
    return config.model_copy(update={"snapshot": file.with_suffix(".snapshot")})
