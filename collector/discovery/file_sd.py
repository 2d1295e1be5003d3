"""Targets from files in the form that Prometheus reads (`file_sd`): JSON or YAML, watched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from collector.discovery.addresses import target
from collector.discovery.found import Discovery, DiscoveryError, Finders, Found
from collector.values import Seconds

MOST_BYTES: Final = 4_194_304
MOST_FILES: Final = 256


class FileSdConfig(BaseModel):
    """Targets listed in files, as Prometheus' `file_sd_configs` reads them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["file_sd"] = "file_sd"
    files: tuple[str, ...] = Field(
        min_length=1, max_length=32, description="Paths, or patterns like `targets/*.yaml`."
    )
    refresh: Seconds = Field(default=5.0, description="Time between looks at the files.")
    vanish_after: Seconds = Field(
        default=60.0, description="How long a target that is no longer listed stays."
    )

    def build(self, tier: str, finders: Finders) -> Discovery:  # noqa: ARG002  # files need none
        """Return the discovery; nothing is read yet."""
        return FileSd(f"file_sd:{tier}", self.files)


class _Group(BaseModel):
    """One entry of a file. Members that Prometheus does not know either are refused by it too."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    targets: tuple[str, ...]
    labels: dict[str, str] = Field(default_factory=dict)


_GROUPS: Final = TypeAdapter(tuple[_Group, ...])


class FileSd:
    """Reads the files again when one of them changed."""

    def __init__(self, name: str, patterns: tuple[str, ...]) -> None:
        self.name = name
        self._patterns = patterns
        self._marks: dict[Path, tuple[int, int, int]] = {}
        self._found: dict[Path, tuple[Found, ...]] = {}

    async def find(self) -> tuple[Found, ...]:
        """Return the targets of all files.

        Raises:
            DiscoveryError: If there is no file, or one cannot be read or understood.
        """
        return await asyncio.to_thread(self._look)

    async def close(self) -> None:
        """Hold nothing open."""

    def _look(self) -> tuple[Found, ...]:
        paths = sorted(set(self._paths()))
        if not paths:
            msg = f"no file matches {', '.join(self._patterns)}; create it, or correct 'files'"
            raise DiscoveryError(msg)
        if len(paths) > MOST_FILES:
            msg = f"{len(paths)} files match, at most {MOST_FILES} are read; narrow 'files'"
            raise DiscoveryError(msg)
        for path in paths:
            mark = _mark(path)
            if self._marks.get(path) != mark:
                self._found[path] = _read(path)
                self._marks[path] = mark
        for gone in self._found.keys() - set(paths):
            del self._found[gone], self._marks[gone]
        return tuple(found for path in paths for found in self._found[path])

    def _paths(self) -> Iterator[Path]:
        for pattern in self._patterns:
            path = Path(pattern)
            yield from path.parent.glob(path.name)


def _mark(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise _refused(path, f"it cannot be looked at: {error.strerror}") from error
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> tuple[Found, ...]:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise _refused(path, f"it is larger than {MOST_BYTES:,} bytes")
    try:
        data = json.loads(content) if path.suffix == ".json" else yaml.safe_load(content)
        groups = _GROUPS.validate_python(data or ())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise _refused(path, f"{place or 'top'}: {first['msg']}") from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise _refused(path, "it is neither JSON nor YAML") from error
    for group in groups:
        _check(path, group)
    return tuple(target(address, group.labels) for group in groups for address in group.targets)


def _check(path: Path, group: _Group) -> None:
    """Refuse what would quietly become another target than was meant."""
    for address in group.targets:
        if "/" in address or not address.strip():
            raise _refused(path, f"{address[:80]!r} is no host:port")
    if "id" in group.labels and len(group.targets) > 1:
        text = f"the label id {group.labels['id'][:80]!r} is given to {len(group.targets)} targets"
        raise _refused(path, f"{text}; give each a group of its own")


def _refused(path: Path, text: str) -> DiscoveryError:
    msg = (
        f"{path}: {text}; expected a list of {{targets: [host:port], labels: {{name: text}}}}; "
        "the targets found before stay"
    )
    return DiscoveryError(msg)
