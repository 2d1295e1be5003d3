"""Persistence of breaches over completed scrapes: raised by n of the last five, cleared in calm."""

from __future__ import annotations

from dataclasses import dataclass

from detectors.records import Level

LOOK_BACK = 5  # scrapes


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """What is remembered of a condition: `recent` breaches, oldest first; `calm` in a row."""

    recent: tuple[bool, ...] = ()
    calm: int = 0
    raised: bool = False

    @property
    def breaches(self) -> int:
        """Breaches among the last five scrapes."""
        return sum(self.recent)

    @property
    def breached(self) -> bool:
        """Whether the newest scrape breached."""
        return bool(self.recent) and self.recent[-1]

    @property
    def level(self) -> Level:
        """Critical while raised; warning for a breach that has not lasted yet."""
        if self.raised:
            return Level.CRITICAL
        return Level.WARNING if self.breached else Level.OK

    def seen(self, *, breach: bool, calm: bool, breaches: int, calms: int) -> Hysteresis:
        """Return the memory after one more scrape.

        Args:
            breach: Whether this scrape is at or beyond the trip threshold.
            calm: Whether it is at or below the clear threshold.
            breaches: Breaches of the last five that raise, 1 to 5.
            calms: Calm scrapes in a row that clear, at least 1.
        """
        recent = (*self.recent, breach)[-LOOK_BACK:]
        in_a_row = self.calm + 1 if calm else 0
        if self.raised and in_a_row >= calms:
            return Hysteresis()
        raised = self.raised or sum(recent) >= breaches
        return Hysteresis(recent, min(in_a_row, calms), raised)

    def words(self) -> str:
        """Say how often the last five scrapes breached, and how far clearing has come."""
        text = f"{self.breaches} of the last {LOOK_BACK} scrapes"
        return f"{text}, calm for {self.calm}" if self.raised and self.calm else text
