"""What the demo runs beside itself: tier, gateway and service, and whether they are up."""

from __future__ import annotations

import asyncio
import base64
import secrets
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2

from collector.demo import settings
from collector.demo.children import Child, child
from collector.demo.facts import Service
from collector.demo.story import StoryError

SERVE = "import sys; from collector.cli import main; sys.exit(main())"
_READY_SECONDS = 45.0


@asynccontextmanager
async def start_all(folder: Path, *, pull: bool) -> AsyncIterator[list[Child]]:
    """Start tier, gateway and service, in this order; end them in the other."""
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    environ = {settings.SECRET_VARIABLE: secret}
    python = [sys.executable, "-u"]
    targets = [
        word
        for name, port in settings.TARGET_PORTS.items()
        for word in ("--target", f"{name}={port}")
    ]
    control = ["--control", str(settings.CONTROL_PORT)]
    feed = ["--pull"] if pull else []
    commands = {
        "tier": [*python, "-m", "collector.demo.tier", *targets, *control],
        "gateway": [*python, "-m", "collector.demo.gateway", *targets, *feed],
        "service": [*python, "-c", SERVE, "serve", "--config", settings.CONFIG_NAME],
    }
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(child(name, command, folder=folder, environ=environ))
            for name, command in commands.items()
        ]


async def wait_ready(service: Service, http: httpx2.AsyncClient, children: Sequence[Child]) -> None:
    """Wait until service, gateway and tier answer.

    Raises:
        StoryError: If one of them ends, or does not answer in time.
    """
    others = [
        f"{settings.address(port)}/health"
        for port in (settings.GATEWAY_PORT, *settings.TARGET_PORTS.values())
    ]
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        check_alive(children)
        if await service.ready() and await _all_answer(http, others):
            return
        await asyncio.sleep(0.2)
    tails = "\n".join(f"--- {part.name}\n{part.tail()}" for part in children)
    msg = f"not ready after {_READY_SECONDS:.0f} s; the last lines of each part:\n{tails}"
    raise StoryError(msg)


async def _all_answer(http: httpx2.AsyncClient, urls: Sequence[str]) -> bool:
    try:
        answers = [await http.get(url) for url in urls]
    except httpx2.HTTPError:
        return False
    return all(answer.status_code == httpx2.codes.OK for answer in answers)


def check_alive(children: Sequence[Child]) -> None:
    """Raise `StoryError`, with the last lines of its log, if one of `children` has ended."""
    for part in children:
        if part.ended:
            msg = (
                f"the {part.name} ended with status {part.process.returncode}; "
                f"its last lines ({part.log}):\n{part.tail()}"
            )
            raise StoryError(msg)
