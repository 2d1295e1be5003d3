"""From the file to `Config`: parse, fill in, validate, cross-check, report everything at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from collector.config.checks import check, items, mapping, read_secret
from collector.config.discovered import target_of
from collector.config.document import Document, Tree, read_document
from collector.config.models import Config
from collector.config.problems import ConfigError, Place
from collector.config.translation import report
from collector.discovery.found import Found
from collector.sources.engine.engines import signal_named

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
        _templates(document, config)
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
    _credential_paths(data, folder)
    for tier in mapping(data.get("tiers")).values():
        read = [mapping(target).get("sources") for target in items(mapping(tier).get("targets"))]
        read += [mapping(tier).get(key) for key in ("neighbours", "discovery", "template")]
        for tree in read:
            _resolve_all(tree, folder)
    for followed in items(mapping(data.get("ingest")).get("files")):
        _resolve(mapping(followed), "path", folder)
    store = data.setdefault("store", f"{_SQLITE}fusewire.db")
    if isinstance(store, str) and store.startswith(_SQLITE) and len(store) > len(_SQLITE):
        file = store.removeprefix(_SQLITE)
        if not file.startswith(":memory:"):
            data["store"] = _SQLITE + str(folder / file)


def _credential_paths(data: dict[str, Tree], folder: Path) -> None:
    for server in mapping(data.get("prometheus")).values():
        _resolve_all(server, folder)
    for tier in mapping(data.get("tiers")).values():
        for target in items(mapping(tier).get("targets")):
            for key in ("headers_file", "bearer_token_file"):
                _resolve(mapping(target), key, folder)


def _resolve_all(tree: Tree, folder: Path) -> None:
    """Make every path in a tree of sources absolute: `path`, `directory`, `*_file`, `files`."""
    if isinstance(tree, list):
        for one in tree:
            _resolve_all(one, folder)
    if not isinstance(tree, dict):
        return
    for key, value in tree.items():
        if key in {"path", "directory"} or key.endswith("_file"):
            _resolve(tree, key, folder)
        elif key == "files" and isinstance(value, list):
            tree[key] = [str(folder / one) if isinstance(one, str) else one for one in value]
        else:
            _resolve_all(value, folder)


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


class _AnyLabel(dict[str, str]):
    """The labels of a made-up target: it has all of them."""

    def get(self, key: str, default: str | None = None, /) -> str:  # type: ignore[override]
        del key, default
        return "found"


def _templates(document: Document, config: Config) -> None:
    """Try each template on a made-up target: a mistake is told now and not when one comes."""
    for name, tier in config.tiers.items():
        try:
            target_of(tier.template, Found("found", "http://127.0.0.1:8000", labels=_AnyLabel()))
        except ValueError as error:
            place: Place = ("tiers", name, "template")
            document.report(place, f"keys of a target; {error}", "see tiers.NAME.targets[]")


def _with_snapshot(config: Config, folder: Path) -> Config:
    if config.snapshot is not None:
        return config
    store = config.store
    file = Path(store.removeprefix(_SQLITE)) if store.startswith(_SQLITE) else folder / "fusewire"
    return config.model_copy(update={"snapshot": file.with_suffix(".snapshot")})
