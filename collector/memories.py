"""Detector memories over a restart: sections of the snapshot file, one a (detector, tier, target).

Observations are statistics: a lost snapshot costs evidence, not control state. So a snapshot that
is torn, old, or from before a reboot is left aside, and the log says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from alerts import policy
from alerts.policy import PolicyMemory
from collector.state import State
from collector.store import snapshot
from collector.store.snapshot import SnapshotError
from detectors.protocols import ReadingDetector, TickDetector

_LOG = logging.getLogger(__name__)
OLDEST_SECONDS = 600.0  # evidence from before that says nothing of now
_AT_ONCE = 200  # memories turned to bytes before others get a turn on the loop
_CLOCK = "clock"
_POLICY = "policy"
_POSITION = "position:"


def saved_positions(path: Path) -> dict[str, bytes]:
    """Return what a snapshot holds beside memories, however old: positions in files, targets found.

    The names are those that were given to `Memories.write`.
    """
    try:
        sections = snapshot.read(path).sections if path.exists() else {}
    except SnapshotError:
        return {}  # `Memories.read` logs it
    return {
        name.removeprefix(_POSITION): data
        for name, data in sections.items()
        if name.startswith(_POSITION)
    }


class Memories:
    """Writes and reads the snapshot of a process."""

    def __init__(
        self,
        path: Path,
        state: State,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self.written_monotonic: float | None = None
        self._path = path
        self._state = state
        self._now = now
        self._monotonic = monotonic
        self._detectors: Mapping[str, Mapping[str, ReadingDetector[Any] | TickDetector[Any]]] = {}

    def use(
        self,
        detectors: Mapping[str, Sequence[ReadingDetector[Any] | TickDetector[Any]]],
    ) -> None:
        """Take over the detectors of a configuration, by tier."""
        self._detectors = {
            tier: {detector.name: detector for detector in found}
            for tier, found in detectors.items()
        }

    async def write(self, alerts: PolicyMemory, positions: Mapping[str, bytes]) -> None:
        """Write every memory, in a thread; `positions` are what `saved_positions` returns.

        Raises:
            SnapshotError: If the file cannot be written.
        """
        sections = {
            _CLOCK: repr(self._monotonic()).encode(),
            _POLICY: policy.save(alerts),
            **{_POSITION + path: data for path, data in positions.items()},
        }
        for number, (place, memory) in enumerate(list(self._state.memories.items())):
            detector = self._detectors.get(place[1], {}).get(place[0])
            if detector is not None:
                sections[json.dumps(place)] = detector.save(memory)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        await asyncio.to_thread(snapshot.write, self._path, sections, self._now())
        self.written_monotonic = self._monotonic()

    def last_written(self) -> datetime | None:
        """Return when the snapshot was written, however old; None if there is none to be read."""
        try:
            return snapshot.read(self._path).at if self._path.exists() else None
        except SnapshotError:
            return None  # `read` logs it

    def read(self) -> PolicyMemory:
        """Restore what a snapshot holds into the state; return the alerts' memory."""
        if not self._path.exists():
            return PolicyMemory()
        try:
            found = snapshot.read(self._path)
            saved_clock = float(found.sections[_CLOCK])
            alerts = policy.load(found.sections[_POLICY])
        except (SnapshotError, KeyError, ValueError) as error:
            _LOG.warning("snapshot left aside", extra={"problem": str(error)})
            return PolicyMemory()
        age = (self._now() - found.at).total_seconds()
        if not 0 <= age <= OLDEST_SECONDS or saved_clock > self._monotonic():
            _LOG.info("snapshot too old to use", extra={"age_seconds": age})
            return PolicyMemory()
        restored = sum(self._restore(name, data) for name, data in found.sections.items())
        _LOG.info("snapshot restored", extra={"memories": restored, "age_seconds": age})
        return alerts

    def _restore(self, name: str, data: bytes) -> bool:
        if name in {_CLOCK, _POLICY} or name.startswith(_POSITION):
            return False
        try:
            kind, tier, target = json.loads(name)
            detector = self._detectors[tier][kind]
            self._state.remember((kind, tier, target), detector.load(data))
        except (ValueError, KeyError):
            return False  # another configuration or release: that detector starts anew
        return True
