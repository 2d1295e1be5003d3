"""The journal in memory keeps the contract of every journal."""

from __future__ import annotations

import pytest

from alerts.breaker.records import Key, Override, Transition
from tests.alerts.memory_journal import Disk, MemoryJournal
from tests.contracts.journal_bench import Bench, Check
from tests.contracts.journal_contract import CHECKS


@pytest.mark.anyio
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_journal_in_memory_keeps_the_contract(check: Check) -> None:
    disk = Disk()

    async def ask(key: Key, override: Override | None) -> None:
        disk.asked[key] = override

    async def transitions() -> list[Transition]:
        return list(disk.transitions)

    await check(Bench(lambda: MemoryJournal(disk), ask, transitions))
