"""Followed files of logged generations: read, decoded, counted; the position survives restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from collector.counting import Counting
from collector.health import Health
from collector.ingest.follower import Follower
from collector.ingest.intake import Intake, IntakeBusy, IntakeError
from collector.ingest.records import BodyError, Decoded, Defaults
from collector.ingest.rotated import Position
from detectors.records import Batch
from exporters.catalog import (
    FOLLOWER_LAG,
    FOLLOWER_LOST,
    FOLLOWER_RESTARTS,
    GENERATIONS_REJECTED,
)
from exporters.prometheus import MetricsPage

QUIET_SECONDS = 0.5  # between looks at a file that did not grow
TRIES = 3  # for a piece whose decoding worker died


@dataclass(slots=True)
class Following:
    """One followed file. `defaults` says what holds for its lines at the moment of reading."""

    name: str
    follower: Follower
    intake: Intake
    defaults: Callable[[], Defaults]
    take_batch: Callable[[Batch], None]
    counting: Counting
    page: MetricsPage
    health: Health
    _part: str = field(init=False)

    def __post_init__(self) -> None:
        self._part = f"file:{self.name}"

    async def run(self) -> None:
        """Follow the file until cancelled."""
        try:
            while True:
                if not await self._step():
                    await asyncio.sleep(QUIET_SECONDS)
        finally:
            self.follower.close()

    async def _step(self) -> bool:
        """Read and count one piece; return whether there may be more at once."""
        chunk = await self.follower.read()
        labels = {"source": self._part}
        self.page.set(FOLLOWER_LAG, labels, chunk.lag_bytes)
        if chunk.restarts:
            self.page.add(FOLLOWER_RESTARTS, labels, chunk.restarts)
        if chunk.lost:
            self.page.add(FOLLOWER_LOST, labels, chunk.lost)
        if chunk.skipped:
            self.page.add(GENERATIONS_REJECTED, labels | {"reason": "oversized"}, chunk.skipped)
        if chunk.problem:
            self.health.broke(self._part, chunk.problem)
            return False
        self.health.healed(self._part)
        if not chunk.payload:
            return False
        decoded = await self._decoded(chunk.payload)
        if decoded is not None:
            await self.counting.take(decoded, source=self._part, take_batch=self.take_batch)
        return True

    async def _decoded(self, payload: bytes) -> Decoded | None:
        """Decode a piece; wait while intake is full, give up on a piece that kills workers."""
        tries = 0
        while tries < TRIES:
            try:
                return await self.intake.submit(payload, self.defaults())
            except IntakeBusy as error:
                await asyncio.sleep(error.retry_after_seconds)
            except IntakeError as error:
                tries += 1
                self.health.broke(self._part, str(error))
            except BodyError as error:
                self.health.broke(self._part, str(error))
                break
        self.page.add(GENERATIONS_REJECTED, {"source": self._part, "reason": "unreadable_piece"})
        return None


def save_position(position: Position) -> bytes:
    """Return a position as bytes for the snapshot."""
    return msgspec.json.encode(position)


def load_position(data: bytes) -> Position:
    """Read back what `save_position` wrote.

    Raises:
        ValueError: If the bytes are of another form.
    """
    try:
        return msgspec.json.decode(data, type=Position)
    except msgspec.MsgspecError as error:
        msg = f"a saved file position cannot be read: {error}"
        raise ValueError(msg) from error
