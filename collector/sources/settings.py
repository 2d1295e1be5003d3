"""The sources that a configuration may name beside an engine's own page: one line a kind.

`SourceConfig` is of a target (its values join the target's scrapes), `NeighbourConfig` of what
stands beside a tier (a client, a broker, a vector store) and is a reading of its own.
"""

from __future__ import annotations

from typing import TypeAlias

from collector.sources.other_pages import PageConfig

SourceConfig: TypeAlias = PageConfig
NeighbourConfig: TypeAlias = PageConfig
