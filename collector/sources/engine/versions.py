"""Guesses an engine's version from what is on its page, when it cannot be asked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from collector.sources.engine.rows import Evidence
from collector.sources.page.page import Page

_RELEASE = re.compile(r"\d+(?:\.\d+)*")


def version_span(page: Page, evidence: Sequence[Evidence]) -> str:
    """Return the versions that a page can be of: `0.9.2-0.11.2`, `>=0.32.0`, `<=0.6.6` or "".

    Both ends are included. Nothing is concluded from what is missing, since families appear when
    they are first used. Evidence that contradicts itself gives "".
    """
    found = [it for it in evidence if _holds(it, page)]
    since = max((it.since for it in found if it.since), key=release, default="")
    until = min((it.until for it in found if it.until), key=release, default="")
    if since and until:
        if release(since) > release(until):
            return ""
        return since if since == until else f"{since}-{until}"
    if since:
        return f">={since}"
    return f"<={until}" if until else ""


def span_ends(span: str) -> tuple[str, str]:
    """Return first and last version of what `version_span` or an engine itself says; "" is open.

    >>> span_ends("0.9.2-0.11.2"), span_ends(">=0.32.0"), span_ends("0.8.5.post2")
    (('0.9.2', '0.11.2'), ('0.32.0', ''), ('0.8.5', '0.8.5'))
    """
    found = _RELEASE.findall(span)
    if not found:
        return "", ""
    if span.startswith(">="):
        return found[0], ""
    if span.startswith("<="):
        return "", found[0]
    pair = re.fullmatch(rf"({_RELEASE.pattern})-({_RELEASE.pattern})", span)
    return (pair[1], pair[2]) if pair else (found[0], found[0])


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, for comparing; empty if it has none.

    >>> release("v0.10.1rc2"), release("b7010")
    ((0, 10, 1), (7010,))
    """
    found = _RELEASE.search(version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _holds(evidence: Evidence, page: Page) -> bool:
    if not evidence.label:
        return evidence.family in page.types or evidence.family in page.samples
    labels = [series.labels for series, _ in page.samples.get(evidence.family, ())]
    if evidence.value:
        return any(it.get(evidence.label) == evidence.value for it in labels)
    return any(evidence.label in it for it in labels)
