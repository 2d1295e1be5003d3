"""What sources must remember over a restart or a reload: few, small, and not in the database."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeGuard

from collector.sources.protocols import Source

_LOG = logging.getLogger(__name__)
PREFIX: Final = "source:"  # in the snapshot, beside the positions of followed files


class Remembering(Protocol):
    """A source with something to remember; `save` is empty while there is nothing."""

    @property
    def name(self) -> str: ...

    def save(self) -> bytes: ...

    def load(self, data: bytes) -> None:
        """Take over what `save` wrote; `ValueError` if it cannot be used."""
        ...


def saved(sources: Iterable[Source]) -> dict[str, bytes]:
    """Return what the sources want to remember, by a name for the snapshot."""
    return {
        PREFIX + source.name: data
        for source in sources
        if _remembers(source) and (data := source.save())
    }


def restore(sources: Iterable[Source], kept: Mapping[str, bytes]) -> None:
    """Give sources what was kept of them; what cannot be used is logged and left aside."""
    for source in sources:
        data = kept.get(PREFIX + source.name)
        if data is None or not _remembers(source):
            continue
        try:
            source.load(data)
        except ValueError as error:
            extra = {"source": source.name, "problem": str(error)}
            _LOG.warning("memory of a source left aside", extra=extra)


def _remembers(source: object) -> TypeGuard[Remembering]:
    return hasattr(source, "save")  # a check of the whole protocol takes 20 us, for each of a fleet
