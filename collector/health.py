"""One broken part does not stop the others: the only place that catches `Exception`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Condition:
    """What is known of one part: failures since start, and the problem while it is broken."""

    failures: int = 0
    problem: str = ""


class Health:
    """Counts failures of parts; logs when a part breaks and when it heals, not in between."""

    def __init__(self, on_change: Callable[[str, Condition], None] | None = None) -> None:
        self._conditions: dict[str, Condition] = {}
        self._on_change = on_change

    @property
    def conditions(self) -> dict[str, Condition]:
        return dict(self._conditions)

    @contextmanager
    def watch(self, part: str, *, foreseen: type[Exception] | None = None) -> Iterator[None]:
        """Run the body; an exception is counted and logged, and does not leave.

        One of the class `foreseen` (somebody's file or server, no fault of the program) is told by
        its text alone, without a traceback. Cancellation and other `BaseException`s pass.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001  # this is the one place that may: STYLE
            if foreseen is not None and isinstance(error, foreseen):
                self.broke(part, str(error))
            else:
                self.broke(part, f"{type(error).__name__}: {error}", error)
        else:
            self.healed(part)

    def broke(self, part: str, problem: str, error: Exception | None = None) -> None:
        """Count a failure of `part`; log it if the part was well before."""
        before = self._conditions.get(part, Condition())
        self._set(part, Condition(before.failures + 1, problem))
        if not before.problem:
            extra = {"part": part, "problem": problem}
            _LOG.warning("part broke", extra=extra, exc_info=error)

    def healed(self, part: str) -> None:
        """Note that `part` works; log it if it was broken before."""
        before = self._conditions.get(part)
        if before is None or before.problem:
            failures = before.failures if before else 0
            self._set(part, Condition(failures))
            if before:
                _LOG.info("part healed", extra={"part": part, "failures": failures})

    def forget(self, part: str) -> None:
        """Drop what is known of a part that is gone."""
        self._conditions.pop(part, None)

    def _set(self, part: str, condition: Condition) -> None:
        self._conditions[part] = condition
        if self._on_change is not None:
            self._on_change(part, condition)
