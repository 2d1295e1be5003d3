"""The small gateway of the demo, a process of its own: the embedded receiver around a proxy.

    python -m collector.demo.gateway --target a=9741 --target b=9742 --target c=9743 [--pull]

It knows of breakers by the receiver alone: by signed webhook (the secret comes from the
environment), or with `--pull` by long-polling `/v1/state`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from random import Random

import httpx2
from starlette.applications import Starlette
from starlette.routing import Route

from alerts.embed.receiver import FusewireReceiver
from collector.demo import settings
from collector.demo.intake import IntakeQueue
from collector.demo.proxy import Proxy
from collector.demo.serving import listen_on, serve, utc_now

SERVED = ("/v1/",)  # only these paths are ever refused
_MOST_CONNECTIONS = 128


def receiver_of(secret: str, *, state_url: str | None) -> Callable[[Starlette], FusewireReceiver]:
    """Return what puts the receiver around an app: pulling `state_url`, else told by webhook."""

    def around(app: Starlette) -> FusewireReceiver:
        return FusewireReceiver(
            app,
            tier=settings.TIER,
            secret="" if state_url else secret,
            path=settings.WEBHOOK_PATH,
            state_url=state_url,
            prefixes=SERVED,
        )

    return around


def gateway(
    targets: Mapping[str, str],
    *,
    around: Callable[[Starlette], FusewireReceiver],
    http: httpx2.AsyncClient,
    ingest_url: str,
    rng: Random,
    clocks: tuple[Callable[[], datetime], Callable[[], float]],
) -> FusewireReceiver:
    """Return the gateway's application.

    Args:
        targets: Base URL of each target, by its id.
        around: Puts the receiver around the proxy (`receiver_of`).
        http: Client for targets and for the log of generations; closed with the application.
        ingest_url: Where generations are logged.
        rng: Chooses targets.
        clocks: The moment in UTC, and a monotonic clock in seconds.
    """
    intake = IntakeQueue(tier=settings.TIER)
    proxy = Proxy(
        targets,
        ratio_of=lambda target: receiver.ratios().get(target, 1.0),
        http=http,
        intake=intake,
        rng=rng,
        clocks=clocks,
    )

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        logging = asyncio.create_task(intake.run(http, ingest_url))
        try:
            yield
        finally:
            logging.cancel()
            with suppress(asyncio.CancelledError):
                await logging
            receiver.close()
            await http.aclose()

    app = Starlette(
        routes=[
            Route("/v1/completions", proxy.completions, methods=["POST"]),
            Route("/health", proxy.health),
        ],
        lifespan=lifespan,
    )
    receiver = around(app)
    return receiver


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the gateway until the process is told to end."""
    parser = argparse.ArgumentParser(prog="collector.demo.gateway")
    parser.add_argument("--target", action="append", required=True, metavar="NAME=PORT")
    parser.add_argument("--port", type=int, default=settings.GATEWAY_PORT)
    parser.add_argument("--pull", action="store_true")
    given = parser.parse_args(arguments)
    pairs = [text.partition("=") for text in given.target]
    service = settings.address(settings.SERVICE_PORT)
    app = gateway(
        {name: settings.address(int(port)) for name, _, port in pairs},
        around=receiver_of(
            os.environ.get(settings.SECRET_VARIABLE, ""),
            state_url=f"{service}/v1/state" if given.pull else None,
        ),
        http=httpx2.AsyncClient(
            timeout=10.0,
            trust_env=False,
            limits=httpx2.Limits(
                max_connections=_MOST_CONNECTIONS, max_keepalive_connections=_MOST_CONNECTIONS
            ),
        ),
        ingest_url=f"{service}/v1/ingest/generations?tier={settings.TIER}",
        rng=Random(2),  # noqa: S311  # spreads requests, guards nothing
        clocks=(utc_now, time.monotonic),
    )
    asyncio.run(serve(app, listen_on(given.port)))


if __name__ == "__main__":
    main()
