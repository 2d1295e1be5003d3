"""Serves an application of the demo on fixed loopback ports; its processes' only real clock."""

from __future__ import annotations

import socket
from datetime import UTC, datetime

import uvicorn
from starlette.types import ASGIApp

HOST = "127.0.0.1"


def listen_on(*ports: int) -> list[socket.socket]:
    """Return a listening socket for each port.

    Raises:
        OSError: If a port is taken.
    """
    return [socket.create_server((HOST, port), backlog=512) for port in ports]


def taken_ports(*ports: int) -> list[int]:
    """Return those of `ports` that nothing of ours could listen on."""
    taken = []
    for port in ports:
        try:
            socket.create_server((HOST, port)).close()
        except OSError:
            taken.append(port)
    return taken


def utc_now() -> datetime:
    """Return the present moment, aware, in UTC."""
    return datetime.now(UTC)  # noqa: TID251  # the demo's processes are wired here


async def serve(app: ASGIApp, sockets: list[socket.socket]) -> None:
    """Serve `app` on all `sockets` until a signal ends the process."""
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="auto")
    await uvicorn.Server(config).serve(sockets=sockets)
