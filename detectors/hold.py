"""Persistence of a condition over watched time: raised once it has held, cleared once it is calm.

For conditions that are judged over minutes and whose sources are read at different intervals; what
counts scrapes is `hysteresis.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from detectors.records import Level


@dataclass(frozen=True, slots=True)
class Hold:
    """What is remembered of a condition.

    `held_seconds` and `calm_seconds` are watched time without a break, None while it is not so;
    `seen_seconds` is the monotonic time of the last usable scrape, None if nothing was watched
    just before.
    """

    held_seconds: float | None = None
    calm_seconds: float | None = None
    raised: bool = False
    seen_seconds: float | None = None

    @property
    def breached(self) -> bool:
        """Whether the newest scrape breached."""
        return self.held_seconds is not None

    @property
    def level(self) -> Level:
        """Critical while raised; warning for a breach that has not lasted yet."""
        if self.raised:
            return Level.CRITICAL
        return Level.WARNING if self.breached else Level.OK

    def seen(
        self, now: float, *, breach: bool, calm: bool, hold_seconds: float, clear_seconds: float
    ) -> Hold:
        """Return the memory after a usable scrape.

        Args:
            now: Its monotonic time in seconds.
            breach: Whether the condition holds.
            calm: Whether all is well; neither of both changes nothing but the breach's time.
            hold_seconds: Time that the condition must hold to raise, 0 raises at once.
            clear_seconds: Time of calm that clears.
        """
        passed = max(now - self.seen_seconds, 0.0) if self.seen_seconds is not None else 0.0
        held = _longer(self.held_seconds, passed) if breach else None
        quiet = _longer(self.calm_seconds, passed) if calm else None
        if self.raised and quiet is not None and quiet >= clear_seconds:
            return Hold(seen_seconds=now)
        raised = self.raised or (held is not None and held >= hold_seconds)
        return Hold(held, quiet, raised, now)

    def missed(self) -> Hold:
        """Return the memory after a scrape that cannot be judged: time stands still."""
        return replace(self, seen_seconds=None)

    def words(self, hold_seconds: float) -> str:
        """Say how long the condition has held, of how long it must."""
        if self.held_seconds is None:
            return "raised, not yet calm for long enough" if self.raised else "not so now"
        return f"for {self.held_seconds:.0f} s (raised after {hold_seconds:g} s)"


def _longer(seconds: float | None, passed: float) -> float:
    return 0.0 if seconds is None else seconds + passed
