"""Followed files: every piece is counted once, whatever happens to the intake."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from collector.counting import Counting
from collector.following import Following, load_position, save_position
from collector.health import Health
from collector.ingest.follower import Follower
from collector.ingest.intake import Intake, IntakeBusy, IntakeError, Work, open_and_decode
from collector.ingest.records import BodyError, Decoded, Defaults, Reason
from collector.ingest.rotated import Position
from detectors.records import Batch
from exporters.prometheus import MetricsPage
from tests.builders import START, a_batch

pytestmark = pytest.mark.anyio


@dataclass
class Scripted(Intake):
    """An intake that answers from a list: an exception is raised, else one batch is decoded."""

    script: list[Exception | None]
    bodies: list[bytes] = field(default_factory=list)

    async def submit(
        self,
        body: bytes,
        defaults: Defaults,
        *,
        encoding: str = "",
        work: Work = open_and_decode,
    ) -> Decoded:
        self.bodies.append(body)
        outcome = self.script.pop(0) if self.script else None
        if outcome is not None:
            raise outcome
        return Decoded(batches=(a_batch({"prompt_tokens": [1.0]}),), accepted=1)


async def follow(
    path: Path, script: list[Exception | None]
) -> tuple[list[Batch], Scripted, Health, str]:
    """Follow `path` for a moment; return what was counted and what was said."""
    intake, health = Scripted(script), Health()
    taken: list[Batch] = []
    page = MetricsPage(monotonic=lambda: 0.0)
    following = Following(
        name=path.name,
        follower=Follower(path, max_line_bytes=1000),
        intake=intake,
        defaults=lambda: Defaults(arrival=START, tiers={}),
        take_batch=taken.append,
        counting=Counting(page, monotonic=lambda: 0.0, tick_seconds=5.0),
        page=page,
        health=health,
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await following.run()
    return taken, intake, health, page.render()[0].decode()


async def test_a_full_intake_is_waited_for_and_nothing_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("{}\n")

    taken, intake, _, _ = await follow(log, [IntakeBusy(0.01), IntakeBusy(0.01), None])

    assert len(taken) == 1
    assert intake.bodies == [b"{}\n"] * 3


async def test_a_piece_that_kills_workers_is_given_up_and_counted(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("{}\n")
    died = [IntakeError("died"), IntakeError("died"), IntakeError("died")]

    taken, intake, health, page = await follow(log, [*died])

    assert taken == []
    assert len(intake.bodies) == 3
    assert health.conditions["file:log.jsonl"].failures == 3
    assert 'reason="unreadable_piece"' in page


async def test_a_body_that_cannot_be_read_is_counted_and_the_next_one_is_read(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("{}\n")

    taken, _, health, page = await follow(log, [BodyError(Reason.TOO_LARGE, "too large")])

    assert taken == []
    assert health.conditions["file:log.jsonl"].failures == 1
    assert 'reason="unreadable_piece"' in page


async def test_a_missing_file_is_a_broken_part_until_it_comes(tmp_path: Path) -> None:
    _, _, health, _ = await follow(tmp_path / "log.jsonl", [])

    assert "no such file yet" in health.conditions["file:log.jsonl"].problem


def test_a_position_reads_back_and_a_foreign_one_is_refused() -> None:
    position = Position(device=1, inode=2, offset=30, digest="ab")

    assert load_position(save_position(position)) == position
    with pytest.raises(ValueError, match="cannot be read"):
        load_position(b"{}")
