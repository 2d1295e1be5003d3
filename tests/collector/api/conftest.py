"""The service's parts on a store in a temporary folder, asked in process; nothing is scraped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI

from collector.app import make_app
from collector.config import Config, load
from collector.service import Service
from collector.wiring import Outside, make_service

YAML = """
store: sqlite:///{folder}/fusewire.db
snapshot: {folder}/fusewire.snapshot
mode: enforce
tiers:
  chat:
    segments: [search]
    targets:
      - {{id: a, url: "http://127.0.0.1:11"}}
      - {{id: b, url: "http://127.0.0.1:12"}}
      - {{id: c, url: "http://127.0.0.1:13"}}
    baseline: {{requests: 100}}
    breaker: {{warmup_seconds: 0}}
ingest:
  max_line_bytes: 100000
  max_batch_bytes: 1000000
"""


@dataclass
class Asked:
    """The application and what is behind it."""

    client: httpx2.AsyncClient
    service: Service
    app: FastAPI


def a_config(folder: Path) -> Config:
    """Return the configuration of these tests."""
    file = folder / "fusewire.yaml"
    file.write_text(YAML.format(folder=folder))
    return load(file, {})


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[Asked]:
    """Connect the parts, load what is kept, and start no loop."""
    service = await make_service(a_config(folder), Outside(lambda: None))
    await service.parts.keeper.start()
    await service.parts.controller.start()
    app = make_app(service.parts, service.health)
    transport = httpx2.ASGITransport(app=app)
    try:
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:9731"
        ) as client:
            yield Asked(client, service, app)
    finally:
        await service.stop()


@pytest.fixture
async def asked(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Asked]:
    """The parts, ready to be asked."""
    async with asking(tmp_path) as found:
        yield found
