"""Blocking work off the loop: bounded, one at a time, and never waited for at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from collector.sources.one_thread import OneThread, StuckError

pytestmark = pytest.mark.anyio


async def test_an_answer_comes_back_and_the_thread_is_free_at_once() -> None:
    thread = OneThread("t", monotonic=time.monotonic)

    answers = [await thread.run(partial(int, n), timeout_seconds=5) for n in range(200)]

    assert answers == list(range(200))
    assert not thread.busy


async def test_while_one_call_hangs_no_other_is_begun_and_its_age_is_told() -> None:
    thread = OneThread("t", monotonic=time.monotonic)
    gate = threading.Event()
    begun = []

    def work() -> bool:
        begun.append(1)
        return gate.wait(10)

    with pytest.raises(StuckError):
        await thread.run(work, timeout_seconds=0.05)
    with pytest.raises(StuckError) as second:
        await thread.run(work, timeout_seconds=0.05)
    ended = threading.Event()
    gate.set()
    await thread.finish(ended.set, timeout_seconds=5)

    assert begun == [1]
    assert second.value.seconds >= 0.05
    assert await thread.run(lambda: "free", timeout_seconds=5) == "free"


async def test_the_last_work_waits_for_what_runs_and_is_not_waited_for_long() -> None:
    thread = OneThread("t", monotonic=time.monotonic)
    gate, ended = threading.Event(), threading.Event()
    with pytest.raises(StuckError):
        await thread.run(lambda: gate.wait(10), timeout_seconds=0.01)

    await thread.finish(ended.set, timeout_seconds=0.05)
    early = ended.is_set()
    gate.set()

    assert not early
    assert await asyncio.to_thread(ended.wait, 5)


def test_a_call_that_never_returns_does_not_keep_the_process() -> None:
    script = (
        "import asyncio, time; from collector.sources.one_thread import OneThread, StuckError\n"
        "async def main():\n"
        "    try: await OneThread('t', monotonic=time.monotonic)"
        ".run(lambda: time.sleep(60), timeout_seconds=0.05)\n"
        "    except StuckError: print('stuck')\n"
        "asyncio.run(main())"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "stuck\n", "")
