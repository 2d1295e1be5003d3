"""Gives a page its meaning: families of an engine become canonical signals.

Follows the rows of `engines.py` and nothing else: a page is cleaned of re-exports, each row is
measured (`measure.py`), what follows from others is derived (`derive.py`), and each wanted signal
without a value gets the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from collector.sources.engine.derive import derive
from collector.sources.engine.engines import PROCESS_START, Engine
from collector.sources.engine.measure import Look, measure
from collector.sources.engine.missing import explained
from collector.sources.engine.translation import Translation
from collector.sources.engine.versions import version_span
from collector.sources.names import short_name
from collector.sources.page.page import Page, Sample, Skip
from collector.sources.page.series import Ledger
from detectors.records import Absence, Identity

__all__ = ["Translation", "translate"]

_MODEL_LABELS: Final = ("model_name", "model", "name")  # the last: SGLang in 2024


def translate(  # noqa: PLR0913  # all of it is the context of one page
    page: Page,
    engines: Sequence[Engine],
    ledger: Ledger,
    *,
    configured: Mapping[str, float],
    learned: Mapping[str, float] = MappingProxyType({}),
    monotonic_seconds: float,
    match: Mapping[str, str] = MappingProxyType({}),
) -> Translation:
    """Translate a page.

    Args:
        page: The page as parsed.
        engines: The engines that it may be of; the one with most families on it is taken.
        ledger: The target's memory of counters; changed.
        configured: Signals that the configuration states; they win over the page.
        learned: Limits that were told elsewhere (`/info`, a start-up log); the page wins over them.
        monotonic_seconds: When the page was read.
        match: Labels that a series must carry to be read; for pages that speak of many things.

    Returns:
        Its signals. `absent` covers the signals of the engine's rows and the derived ones.
    """
    out = Translation(values=dict(configured), aliases=dict.fromkeys(configured, "configured"))
    engine = _engine_of(page, engines)
    if engine is None:
        _fall_back(out, *learned, learned=learned)
        rows = (row.signal for candidate in engines for row in candidate.rows)
        out.absent = {it: Absence.NO_DATA for it in rows if it not in out.values}
        return out
    samples = {
        family: _own(_matching(found, match), out.skipped) for family, found in page.samples.items()
    }
    ledger.begin(_process_start(samples))
    look = Look(page, samples, ledger, out, monotonic_seconds)
    for row in engine.rows:
        if row.signal not in out.values:
            measure(row, look)
            _fall_back(out, row.signal, learned=learned)  # a share may need its denominator next
    _fall_back(out, *learned, learned=learned)
    if any(row.signal == "requests_running" for row in engine.rows):
        derive(look, losses=engine.counts_losses)
    out.identity = Identity(
        engine=engine.name, version=version_span(page, engine.evidence), model=_model(samples)
    )
    out.restarted = ledger.restarted
    out.absent = {it: explained(why, out.identity, it) for it, why in out.absent.items()}
    return out


def _fall_back(out: Translation, *signals: str, learned: Mapping[str, float]) -> None:
    """Take what was told elsewhere of these signals where the page has no value."""
    for signal in signals:
        if signal in learned and signal not in out.values:
            out.values[signal] = learned[signal]
            out.aliases[signal] = "told elsewhere"
            out.absent.pop(signal, None)


def _engine_of(page: Page, engines: Sequence[Engine]) -> Engine | None:
    """Return the engine with most families on the page, the first of equals; None if none."""
    named = {family.partition("_")[0]: 0 for family in (*page.samples, *page.types)}
    for family in {*page.samples, *page.types}:
        named[family.partition("_")[0]] += 1
    present = [engine for engine in engines if engine.prefix in page.engines]
    present = [engine for engine in present if not engine.front] or present
    if not present:  # pages whose families have no prefix of their own
        plain = [engine for engine in engines if not engine.prefix]
        return plain[0] if plain and (page.samples or page.types) else None
    return max(present, key=lambda engine: named.get(engine.prefix, 0), default=None)


def _matching(found: Sequence[Sample], match: Mapping[str, str]) -> Sequence[Sample]:
    """Return the series that carry all labels of `match`."""
    if not match:
        return found
    wanted = match.items()
    return [sample for sample in found if wanted <= sample[0].labels.items()]


def _own(found: Sequence[Sample], skipped: Counter[str]) -> Sequence[Sample]:
    """Return the engine's own series: a router's copies would count twice."""
    if not any(series.copied for series, _ in found):
        return found
    own = [sample for sample in found if not sample[0].copied]
    skipped[Skip.REEXPORT] += len(found) - len(own)
    return own


def _process_start(samples: Mapping[str, Sequence[Sample]]) -> float | None:
    starts = [value for _, value in samples.get(PROCESS_START, ()) if math.isfinite(value)]
    return max(starts, default=None)


def _model(samples: Mapping[str, Sequence[Sample]]) -> str:
    """Return the model that the page names, of a path only the last part and a hash."""
    for found in samples.values():
        labels = found[0][0].labels if found else {}  # series of one family are labelled alike
        for label in _MODEL_LABELS:
            model = labels.get(label)
            if model:
                return short_name(model)
    return ""
