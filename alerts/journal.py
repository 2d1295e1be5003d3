"""What alerts need from a journal; `collector/store` implements it, tests have one in memory.

The definitions are in `alerts/breaker/journal.py`, beside the controller that writes through them,
so that no import goes round in a circle.
"""

from __future__ import annotations

from alerts.breaker.journal import Journal, JournalError, Loaded

__all__ = ["Journal", "JournalError", "Loaded"]
