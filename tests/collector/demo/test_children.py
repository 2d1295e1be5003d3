"""Processes of the demo: started, watched, and ended whatever happens."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from collector.demo.children import child

pytestmark = pytest.mark.anyio

WAITS = "import os, time; print('up', os.environ['WORD'], flush=True); time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(60)"
)


def alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


async def says_up(log: Path) -> None:
    for _ in range(1000):
        await asyncio.sleep(0.01)
        if "up" in await asyncio.to_thread(log.read_text):
            return
    pytest.fail("the child never said that it is up")


async def test_a_child_runs_in_its_folder_with_its_environment_and_is_ended(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-S", "-c", WAITS]
    async with child("tier", command, folder=tmp_path, environ={"WORD": "here"}) as part:
        await says_up(part.log)
        assert not part.ended
        assert part.tail() == "up here"
        assert part.log == tmp_path / "tier.log"

    assert part.ended
    assert not alive(part.process.pid)


async def test_a_child_is_ended_when_the_block_fails(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", WAITS]
    with pytest.raises(RuntimeError, match="on the way"):
        async with child("tier", command, folder=tmp_path, environ={"WORD": ""}) as part:
            raise RuntimeError("on the way")

    assert not alive(part.process.pid)


async def test_a_child_is_ended_when_the_task_is_cancelled(tmp_path: Path) -> None:
    started: asyncio.Queue[int] = asyncio.Queue()

    async def work() -> None:
        command = [sys.executable, "-S", "-c", WAITS]
        async with child("tier", command, folder=tmp_path, environ={"WORD": ""}) as part:
            started.put_nowait(part.process.pid)
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    process_id = await started.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not alive(process_id)


async def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", STUBBORN]
    async with child("tier", command, folder=tmp_path, environ={}, end_seconds=0.05) as part:
        await says_up(part.log)

    assert part.process.returncode == -9


async def test_a_child_that_fails_shows_its_last_lines(tmp_path: Path) -> None:
    lines = "print(*range(40), sep=chr(10)); raise SystemExit(3)"
    command = [sys.executable, "-S", "-c", lines]
    async with child("service", command, folder=tmp_path, environ={}) as part:
        await part.process.wait()
        assert part.ended
        assert part.process.returncode == 3
        assert part.tail().splitlines() == [str(number) for number in range(28, 40)]
