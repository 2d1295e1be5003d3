"""How many LoRA adapters are in use: from a page whose values are times and whose labels are state.

vLLM keeps every combination of adapters that it ever had as a series, with the moment of its last
update as the value. The newest is the present; of several API servers the values are added, and a
time that is yet to come means nothing. Names are of users: they are counted, and not kept.
"""

from __future__ import annotations

from typing import Final

from collector.sources.engine.engines import Engine
from collector.sources.engine.translation import Translation
from collector.sources.page.page import Page
from detectors.records import Absence

SIGNAL: Final = "lora_adapters_active"
SKEW_SECONDS: Final = 60.0  # between the engine's clock and ours
_LABELS: Final = ("running_lora_adapters", "waiting_lora_adapters")  # some versions list all twice


def count_adapters(page: Page, found: Translation, engine: Engine, unix_seconds: float) -> None:
    """Add the number of adapters in use to a scrape, or the reason for none.

    Args:
        page: As parsed.
        found: What it says, changed.
        engine: Whose page it is; one that tells no adapters gets nothing.
        unix_seconds: When it was read, by the clock on the wall.
    """
    if not engine.adapters:
        return
    samples = page.samples.get(engine.adapters, ())
    if not samples:
        known = engine.adapters in page.types
        found.absent[SIGNAL] = Absence.NO_SAMPLE if known else Absence.NO_FAMILY
        return
    told = [
        (value, series)
        for series, value in samples
        if 0.0 < value <= unix_seconds + SKEW_SECONDS and not series.copied
    ]
    if not told or engine.adapters in page.broken:
        found.absent[SIGNAL] = Absence.UNUSABLE
        return
    newest = max(value for value, _ in told)
    names = {
        name
        for value, series in told
        if value == newest
        for label in _LABELS
        for name in series.labels.get(label, "").split(",")
    }
    found.absent.pop(SIGNAL, None)
    found.values[SIGNAL] = float(len(names - {""}))
    found.aliases[SIGNAL] = engine.adapters
