"""Grafana boards, built from the metric catalogue; `written_files` is what `make render` writes."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.panels import render_board
from dashboards.tier import BoardSettings, tier_board

FOLDER = "dashboards/generated"


def render_dashboards(settings: BoardSettings | None = None) -> Mapping[str, str]:
    """Return every board as JSON, by its file name."""
    settings = settings or BoardSettings()
    return {"tier.json": render_board(tier_board(settings))}


def written_files(settings: BoardSettings | None = None) -> Mapping[str, str]:
    """Return the files of `fusewire render dashboards --write`, path to content."""
    return {f"{FOLDER}/{name}": text for name, text in render_dashboards(settings).items()}
