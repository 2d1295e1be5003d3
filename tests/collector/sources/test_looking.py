"""A look at this machine that does not come back."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx2
import pytest

from collector.sources.host.process_memory import OFFERS, ProcessConfig
from collector.sources.protocols import Source, Tools
from detectors.records import Reading
from tests.collector.sources.looked import PLACE, Clock, assert_all_offered_are_told
from tests.collector.sources.servers import NOW

pytestmark = pytest.mark.anyio


async def test_files_that_never_answer_hold_up_nothing_else_and_may_come_back(
    tmp_path: Path,
) -> None:
    """A pipe that nobody writes to keeps its reader as a mount does whose server is gone."""
    pipe = tmp_path / "pid"
    os.mkfifo(pipe)
    async with httpx2.AsyncClient() as client:
        tools = Tools(client, now=lambda: NOW, monotonic=Clock(), timeout_seconds=0.05)
        sources = [ProcessConfig(pid_file=pipe).build(PLACE, tools) for _ in range(40)]
        async with asyncio.timeout(10):
            stuck = await asyncio.gather(*(source.read() for source in sources))
            again = await sources[0].read()
            shared = await asyncio.to_thread(os.getpid)  # as the detectors' steps have it
        os.close(os.open(pipe, os.O_WRONLY))  # lets all of them go
        pipe.unlink()
        pipe.write_text(str(os.getpid()))
        healed = await _until_up(sources[0])

    assert shared == os.getpid()
    for reading in (*stuck, again):
        assert "look at the disk or mount" in reading.problem
        assert_all_offered_are_told(reading, OFFERS)
    assert healed.values["memory_rss_bytes"] > 0


async def _until_up(source: Source) -> Reading:
    reading = await source.read()
    for _ in range(500):
        if reading.up:
            break
        await asyncio.sleep(0.01)
        reading = await source.read()
    return reading
