"""A controller that is killed: for each line on stdin a fresh child records until it dies.

The program forks its children, so that imports are paid once. A child says `pid N`, then `loaded
EPOCH`, `kept N` when entry N was acknowledged, and `asked N` when override request N was.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta

from alerts.breaker.records import Breaker, Delivery, Entry, Key, Override, Transition
from alerts.journal import Journal
from collector.store import overrides
from collector.store.lock import take_lock
from collector.store.store import Store

AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
KEY = Key("chat", "a")
FORCED = Key("chat", "b")


def say(word: str, number: int) -> None:
    os.write(1, f"{word} {number}\n".encode())  # one write: whole, or not at all


def an_entry(epoch: int, number: int) -> Entry:
    before, after = Breaker(KEY, epoch=epoch), Breaker(KEY, epoch=epoch, seq=number)
    delivery = Delivery(
        f"d{number}", "gw", KEY, epoch, number, b"x" * 500, AT, AT, AT + timedelta(seconds=60)
    )
    transition = Transition(KEY, "open", AT, "auto", before, after, f"entry {number}")
    return Entry(after, transition, (delivery,))


async def answer_requests(journal: Journal, epoch: int, seq: int) -> None:
    """Record what others asked for, as a controller does."""
    for key, override in (await journal.overrides()).items():
        assert override is not None
        after = Breaker(key, epoch=epoch, seq=seq, override=override)
        forced = Transition(
            key, "forced_open", AT, override.actor, Breaker(key), after, override.reason
        )
        await journal.record([Entry(after, forced)])


async def record_for_ever(url: str) -> None:
    store = await Store.open(url, now=lambda: AT)
    lock = await take_lock(store, pid=os.getpid(), now=lambda: AT)
    loaded = await store.journal.load()
    say("loaded", loaded.epoch)
    await answer_requests(store.journal, loaded.epoch, 0)
    number = max((row.seq for row in loaded.breakers if row.key == KEY), default=0)
    while await lock.renew():
        number += 1
        await store.journal.record([an_entry(loaded.epoch, number)])
        say("kept", number)
        asked = Override("forced_open", "ana", f"asked {number}", AT, AT + timedelta(hours=1))
        await store.write(overrides.leave, FORCED, asked)
        say("asked", number)
        await answer_requests(store.journal, loaded.epoch, number)


def main(url: str) -> None:
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(record_for_ever(url))
        say("pid", child)
        os.waitpid(child, 0)
        say("dead", child)


if __name__ == "__main__":
    main(sys.argv[1])
