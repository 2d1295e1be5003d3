"""What a reading says, in short."""

from __future__ import annotations

from collector.sources.protocols import Place
from detectors.records import Reading

PLACE = Place("chat", "a", "http://127.0.0.1:8000")


def codes(reading: Reading) -> list[str]:
    return sorted(finding.code for finding in reading.findings)


def text_of(reading: Reading, code: str) -> str:
    return next(finding.text for finding in reading.findings if finding.code == code)
