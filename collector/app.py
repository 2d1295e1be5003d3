"""The process: checks everything, then serves until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from alerts.breaker.controller import Controller
from alerts.breaker.records import Transition
from alerts.journal import JournalError
from collector.api import all_routes
from collector.api.parts import PartsDep
from collector.config import Config, ConfigError, load
from collector.health import Health
from collector.logs import set_up_logs
from collector.parts import Parts, Reloaded
from collector.reloading import rediscover, reload
from collector.service import Service
from collector.status import status_view
from collector.store import audit
from collector.store.lock import ControllerLockedError
from collector.store.session import StoreError
from collector.web.page import CONTENT_SECURITY_POLICY, STYLE_PATH, render, style_sheet
from collector.web.routes_page import render_routes
from collector.wiring import Outside, make_service

_LOG = logging.getLogger(__name__)
_OK, _FAILED, _TROUBLE = 0, 1, 2
BACKLOG = 2048
GRACE_SECONDS = 5
SWITCH_SECONDS = 0.001  # threads that compute give way to the loop sooner than Python's 5 ms


def make_app(parts: Parts, health: Health) -> FastAPI:
    """Return the web application over running parts."""
    app = FastAPI(title="Fusewire", docs_url=None, redoc_url=None)
    app.state.parts = parts
    app.include_router(all_routes())

    @app.exception_handler(StoreError)
    async def store_trouble(_: Request, error: StoreError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=503)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def status_page(parts: PartsDep) -> HTMLResponse:
        transitions: list[Transition] = []
        with health.watch("store:audit"):  # without a database the page still shows what lives
            rows = await parts.store.read(audit.history, limit=20)
            transitions = [row.transition for row in rows]
        view = status_view(parts, health, transitions)
        headers = {"content-security-policy": CONTENT_SECURITY_POLICY, "cache-control": "no-store"}
        return HTMLResponse(render(view), headers=headers)

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def routes_page() -> HTMLResponse:
        headers = {"content-security-policy": CONTENT_SECURITY_POLICY}
        return HTMLResponse(render_routes(app.openapi()), headers=headers)

    @app.get(STYLE_PATH, include_in_schema=False)
    async def style() -> Response:
        return Response(style_sheet(), media_type="text/css")

    return app


def serve(config_path: Path) -> int:
    """Run the service; return the process's exit code.

    0 after a stop, 1 if it had to give up, 2 if it could not start (every problem is printed).
    """
    set_up_logs()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        config = load(config_path, os.environ)
        listener = listen(config)
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return _TROUBLE
    try:
        return asyncio.run(_run(config, config_path, listener))
    except (ConfigError, ControllerLockedError, JournalError, StoreError) as error:
        sys.stderr.write(f"fusewire serve: {error}\n")
        return _TROUBLE
    finally:
        listener.close()


def listen(config: Config) -> socket.socket:
    """Return a socket bound to the configured address.

    Raises:
        OSError: If it cannot be bound; the message says which and what to do.
    """
    host, port = config.listen.host, config.listen.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        msg = (
            f"listen {config.listen}: {error.strerror or error}; end what listens there, or set "
            "'listen' to another address"
        )
        raise OSError(msg) from error
    return listener


async def _run(config: Config, config_path: Path, listener: socket.socket) -> int:
    lost = False

    def on_lost_lock() -> None:
        nonlocal lost
        lost = True
        server.should_exit = True

    service = await make_service(config, Outside(on_lost_lock))
    settings = uvicorn.Config(
        make_app(service.parts, service.health),
        log_config=None,
        access_log=False,
        lifespan="off",
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
        proxy_headers=False,  # nobody's headers decide where a call came from
    )
    server = uvicorn.Server(settings)
    _let_stop(server, service.parts.controller)
    _let_reload(service, config_path)
    try:
        await service.start()
        host, port = listener.getsockname()[:2]
        _LOG.info("listening", extra={"host": host, "port": port})
        await server.serve(sockets=[listener])
    finally:
        await service.stop()
    return _FAILED if lost else _OK


def _let_stop(server: uvicorn.Server, controller: Controller) -> None:
    """Stop in order on SIGTERM and SIGINT at any moment.

    The server raises a signal it caught once more when it is done; with these handlers below its
    own that ends nothing, and what is in memory is still written.
    """

    def stop() -> None:
        server.should_exit = True
        controller.close()  # who waits for a new state is answered at once

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _let_reload(service: Service, config_path: Path) -> None:
    """Reload on SIGHUP and on `POST /-/reload`, one at a time."""
    running: set[asyncio.Task[Reloaded]] = set()

    async def once() -> Reloaded:
        return await reload(service, config_path, os.environ)

    def on_hangup() -> None:
        task = asyncio.ensure_future(once())
        running.add(task)
        task.add_done_callback(running.discard)

    service.parts.reload = once
    service.reconfigure = partial(rediscover, service)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_hangup)
