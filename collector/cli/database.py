"""The store, opened beside the service for the length of one command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.orm import Session

from collector.cli.output import fail, utc_now
from collector.config import Config
from collector.store.session import StoreError, database_file, parse_url
from collector.store.store import Store

T = TypeVar("T")


def read(config: Config, work: Callable[[Session], T]) -> T:
    """Run `work` on one state of the database; end the command if that fails."""
    return _run(config, work, writes=False, may_make=False)


def write(config: Config, work: Callable[[Session], T], *, may_make: bool = False) -> T:
    """Run `work` in one transaction; end the command if that fails.

    `may_make` lets it make a SQLite store that is not there yet.
    """
    return _run(config, work, writes=True, may_make=may_make)


def _run(config: Config, work: Callable[[Session], T], *, writes: bool, may_make: bool) -> T:
    try:
        file = database_file(parse_url(config.store))
        if file is not None and not file.exists() and not may_make:
            fail(f"store {file}: it does not exist yet; 'fusewire serve' makes it")
        return asyncio.run(_in_store(config.store, work, writes=writes))
    except StoreError as error:
        fail(str(error))


async def _in_store(url: str, work: Callable[[Session], T], *, writes: bool) -> T:
    store = await Store.open(url, now=utc_now)
    try:
        return await (store.control(work) if writes else store.read(work))
    finally:
        await store.close()
