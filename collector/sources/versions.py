"""Guesses an engine's version from what is on its page, when it cannot be asked."""

from __future__ import annotations

from collections.abc import Sequence

from collector.sources.engines import Evidence
from collector.sources.page import Page


def version_span(page: Page, evidence: Sequence[Evidence]) -> str:
    """Return the versions that a page can be of: `0.9.2-0.11.2`, `>=0.32.0`, `<=0.6.6` or "".

    Both ends are included. Nothing is concluded from what is missing, since families appear when
    they are first used. Evidence that contradicts itself gives "".
    """
    found = [it for it in evidence if _holds(it, page)]
    since = max((it.since for it in found if it.since), key=_numbers, default="")
    until = min((it.until for it in found if it.until), key=_numbers, default="")
    if since and until:
        if _numbers(since) > _numbers(until):
            return ""
        return since if since == until else f"{since}-{until}"
    if since:
        return f">={since}"
    return f"<={until}" if until else ""


def _holds(evidence: Evidence, page: Page) -> bool:
    if not evidence.label:
        return evidence.family in page.types or evidence.family in page.samples
    labels = [series.labels for series, _ in page.samples.get(evidence.family, ())]
    if evidence.value:
        return any(it.get(evidence.label) == evidence.value for it in labels)
    return any(evidence.label in it for it in labels)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
