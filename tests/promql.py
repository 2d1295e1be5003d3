"""What a PromQL expression names: metrics and labels, for tests against the catalogue."""

from __future__ import annotations

import re

from exporters.catalog import CATALOG, Metric

_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_OURS = re.compile(r"\bfusewire_\w+")
_SELECTED = re.compile(r"\b([a-zA-Z_:][\w:]*)\s*[{\[]")
_MATCHER = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SUFFIXES = ("_bucket", "_count", "_sum")


def metric_names(expr: str) -> set[str]:
    """Return the names of series that `expr` selects."""
    bare = _STRING.sub('""', expr)
    return {*_OURS.findall(bare), *_SELECTED.findall(bare)}


def label_names(expr: str) -> set[str]:
    """Return the labels that `expr` matches on or groups by."""
    bare = _STRING.sub('""', expr)
    inside = " ".join(re.findall(r"\{([^}]*)\}", bare))
    grouped = [name.strip() for names in _GROUPING.findall(bare) for name in names.split(",")]
    return {*_MATCHER.findall(inside), *filter(None, grouped)}


def catalogued(name: str) -> Metric | None:
    """Return the metric behind the series `name`, a histogram's parts included."""
    found = CATALOG.get(name)
    if found is not None and found.kind != "histogram":
        return found
    for suffix in _SUFFIXES:
        histogram = CATALOG.get(name.removesuffix(suffix))
        if name.endswith(suffix) and histogram is not None and histogram.kind == "histogram":
            return histogram
    return None
