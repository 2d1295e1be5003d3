"""What one page says in canonical signals, as it is put together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from detectors.records import Absence, Histogram, Identity
from detectors.remarks import Finding, Quantile


@dataclass(slots=True)
class Translation:
    """One page in canonical signals; `aliases` says which families fed each of them."""

    values: dict[str, float] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    absent: dict[str, Absence] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    identity: Identity = field(default_factory=Identity)
    restarted: bool = False
    quantiles: dict[str, Quantile] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
