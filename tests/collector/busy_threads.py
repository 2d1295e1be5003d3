"""Work in threads that waits: what needs a thread cannot end before it is let go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager


@asynccontextmanager
async def busy_threads() -> AsyncIterator[threading.Event]:
    """Keep the loop's only worker thread busy until the event is set, or the body ends."""
    gate = threading.Event()
    pool = ThreadPoolExecutor(1)
    pool.submit(gate.wait)
    asyncio.get_running_loop().set_default_executor(pool)
    try:
        yield gate
    finally:
        gate.set()


async def turns(count: int = 20) -> None:
    """Let everything that is ready on the loop run, and what that makes ready."""
    for _ in range(count):
        await asyncio.sleep(0)
