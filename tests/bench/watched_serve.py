"""`fusewire serve` with a sampler in its event loop: how late it wakes, and what it burns.

Run as ``python -m tests.bench.watched_serve CONFIG REPORT``. Nothing of the service is changed; the
loop that asyncio makes for it gets one more timer. The report (JSON) is written every second.

A delay by the clock holds also what the machine gives to other processes; the time that the loop's
own thread computed between two turns of the timer is what Fusewire itself blocks.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from collector.app import serve

PERIOD_SECONDS = 0.001
REPORT_SECONDS = 1.0
EDGES = (0.001, 0.002, 0.005, 0.010, 0.020, 0.050)


class Sampler:
    """A timer that notes how late it is, and what the thread computed since its last turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Path) -> None:
        self._loop = loop
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

    def turn(self) -> None:
        now, computed = time.perf_counter(), time.thread_time()
        late, busy = now - self._due, computed - self._computed
        if self._turns:
            self._worst, self._worst_computed = max(self._worst, late), max(self._worst_computed, busy)
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
            "rss_bytes": int(Path("/proc/self/statm").read_text().split()[1]) * 4096,
        }
        fresh = self._report.with_suffix(".new")
        fresh.write_text(json.dumps(found))
        fresh.replace(self._report)
        if self._report.with_suffix(".clear").exists():
            self._report.with_suffix(".clear").unlink()
            self.clear()


class Watched(asyncio.DefaultEventLoopPolicy):
    """Gives the first loop its sampler."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        loop.call_soon(Sampler(loop, Path(sys.argv[2])).turn)
        return loop


if __name__ == "__main__":
    asyncio.set_event_loop_policy(Watched())
    raise SystemExit(serve(Path(sys.argv[1])))
