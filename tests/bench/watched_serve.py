"""`fusewire serve` with a sampler in its event loop: how late it wakes, and what it burns.

Run as ``python -m tests.bench.watched_serve CONFIG REPORT``. Nothing of the service is changed; its
event loop gets one more timer. The report (JSON) is written every second.

A delay by the clock holds also what the machine gives to other processes; the time that the loop's
own thread computed between two turns of the timer is what Fusewire itself blocks. How late the read
of a source starts is told by the sleep until its slot, which outlasts what it was asked for.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import socket
import sys
import time
from array import array
from pathlib import Path
from typing import Any
from unittest.mock import patch

from collector import app, service
from collector.config import Config
from collector.sources.joined import JoinedSource
from collector.sources.polling import poll as poll_unwatched

PERIOD_SECONDS = 0.001
REPORT_SECONDS = 1.0
EDGES = (0.001, 0.002, 0.005, 0.010, 0.020, 0.050)


class Starts:
    """How late reads start against their slots, s."""

    def __init__(self) -> None:
        self.late: array[float] = array("d")
        self.scrapes = 0

    async def poll(self, source: Any, *args: Any, **kwargs: Any) -> None:
        scrapes = isinstance(source, JoinedSource)  # others are its companions

        async def sleep(seconds: float) -> None:
            due = time.monotonic() + seconds
            await asyncio.sleep(seconds)
            self.late.append(time.monotonic() - due)
            self.scrapes += scrapes

        await poll_unwatched(source, *args, **{**kwargs, "sleep": sleep})

    def told(self) -> dict[str, float]:
        late = sorted(self.late) or [0.0]
        return {
            "reads_started": len(self.late),
            "scrapes_started": self.scrapes,
            "started_late_p99_seconds": late[int(len(late) * 0.99)],
            "started_late_most_seconds": late[-1],
        }


class Collections:
    """How long the garbage collector held the process, s."""

    def __init__(self) -> None:
        self.most = 0.0
        self._began = 0.0

    def note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.most = max(self.most, time.perf_counter() - self._began)


class Sampler:
    """A timer that notes how late it is, and what the thread computed since its last turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Path, starts: Starts) -> None:
        self._loop = loop
        self._starts = starts
        self._collections = Collections()
        gc.callbacks.append(self._collections.note)
        self._report = report
        self._due = time.perf_counter()
        self._computed = 0.0
        self._written = 0.0
        self.clear()

    def clear(self) -> None:
        self._worst = self._worst_computed = 0.0
        self._over = dict.fromkeys(EDGES, 0)
        self._over_computed = dict.fromkeys(EDGES, 0)
        self._turns = 0
        del self._starts.late[:]
        self._starts.scrapes = 0
        self._collections.most = 0.0

    def turn(self) -> None:
        now, computed = time.perf_counter(), time.thread_time()
        late, busy = now - self._due, computed - self._computed
        if self._turns:
            self._worst, self._worst_computed = (
                max(self._worst, late),
                max(self._worst_computed, busy),
            )
            for edge in EDGES:
                self._over[edge] += late > edge
                self._over_computed[edge] += busy > edge
        self._turns += 1
        if now - self._written > REPORT_SECONDS:
            self._write(now)
        self._computed = time.thread_time()
        self._due = time.perf_counter() + PERIOD_SECONDS
        self._loop.call_later(PERIOD_SECONDS, self.turn)

    def _write(self, now: float) -> None:
        self._written = now
        used = resource.getrusage(resource.RUSAGE_SELF)
        found = {
            "edges": EDGES,
            "turns": self._turns,
            "worst_seconds": self._worst,
            "worst_computed_seconds": self._worst_computed,
            "late": list(self._over.values()),
            "computed": list(self._over_computed.values()),
            "cpu_seconds": used.ru_utime + used.ru_stime,
            **self._starts.told(),
            "collection_most_seconds": self._collections.most,
            "rss_bytes": int(Path("/proc/self/statm").read_text().split()[1]) * 4096,
        }
        fresh = self._report.with_suffix(".new")
        fresh.write_text(json.dumps(found))
        fresh.replace(self._report)
        if self._report.with_suffix(".clear").exists():
            self._report.with_suffix(".clear").unlink()
            self.clear()


run_unwatched = app._run


async def watched(config: Config, config_path: Path, listener: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    starts = Starts()
    loop.call_soon(Sampler(loop, Path(sys.argv[2]), starts).turn)
    with patch.object(service, "poll", starts.poll):
        return await run_unwatched(config, config_path, listener)


if __name__ == "__main__":
    with patch.object(app, "_run", watched):
        raise SystemExit(app.serve(Path(sys.argv[1])))
