"""`kill -9` at random moments loses nothing that was acknowledged."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from collector.store import audit, deliveries
from collector.store.store import Store
from tests.collector.store.conftest import Clock
from tests.collector.store.recorder import FORCED, KEY

KILLS = 50


@dataclass
class Heard:
    """What the children said, by word."""

    words: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    new: threading.Condition = field(default_factory=threading.Condition)

    def listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            word, number = line.split()
            with self.new:
                self.words[word].append(int(number))
                self.new.notify_all()

    def wait_for(self, word: str, times: int) -> int:
        """Wait until `word` was said so often; return its newest number."""
        with self.new:
            assert self.new.wait_for(lambda: len(self.words[word]) >= times, timeout=20), word
            return self.words[word][-1]


def kill_again_and_again(url: str) -> Heard:
    """Start a controller, kill it at a random moment, and so on; return what was said."""
    heard, moments = Heard(), random.Random(20261129)
    command = [sys.executable, "-m", "tests.collector.store.recorder", url]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as process:
        listener = threading.Thread(target=heard.listen, args=(process,))
        listener.start()
        assert process.stdin is not None
        for round_ in range(1, KILLS + 1):
            process.stdin.write("go\n")
            process.stdin.flush()
            child = heard.wait_for("pid", round_)
            if round_ % 5:  # the others die while they open and load
                heard.wait_for("kept", len(heard.words["kept"]) + 1)
            time.sleep(moments.uniform(0, 0.1))
            os.kill(child, signal.SIGKILL)
            heard.wait_for("dead", round_)
        process.stdin.close()
        listener.join(20)
    return heard


@pytest.mark.slow
@pytest.mark.anyio
async def test_fifty_kills_lose_nothing_that_was_acknowledged(
    sqlite_url: str, clock: Clock
) -> None:
    heard = kill_again_and_again(sqlite_url)

    store = await Store.open(sqlite_url, now=clock)
    report = await store.read(audit.verify)
    entries = await store.read(audit.history, limit=100_000)
    outbox = {row.id for row in await store.read(deliveries.with_status, limit=100_000)}
    sound = await store.read(check_file)
    loaded = await store.journal.load()
    handed_out = await store.journal.overrides()
    await store.close()

    kept, asked = heard.words["kept"], heard.words["asked"]
    recorded = {entry.transition.reason for entry in entries}
    waiting = {override.reason for override in handed_out.values() if override}
    seqs = {breaker.key: breaker.seq for breaker in loaded.breakers}
    assert len(kept) > 2 * KILLS
    assert (report.problem, report.rows, sound) == ("", len(entries), "ok")
    assert {f"entry {number}" for number in kept} <= recorded
    assert {f"d{number}" for number in kept} <= outbox
    assert {f"asked {number}" for number in asked} <= recorded | waiting
    assert kept[-1] <= seqs[KEY] <= kept[-1] + 1
    assert set(handed_out) <= {FORCED}
    epochs = heard.words["loaded"]
    assert all(left < right for left, right in itertools.pairwise(epochs))


def check_file(session: Session) -> object:
    return session.scalar(text("PRAGMA integrity_check"))
