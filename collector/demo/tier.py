"""The recorded tier: three targets in one process of its own, and a control port for the story.

    python -m collector.demo.tier --target a=9741 --target b=9742 --target c=9743 --control 9744

Each target plays recorded pages of `GET /metrics` and answers `POST /v1/completions` with a
recorded answer. `PUT /scene` on the control port says what is played.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from collector.demo.player import SCENES, Player, read_recording
from collector.demo.recorded import (
    BASELINE,
    KV_FULL,
    LOAD,
    SETS,
    Answers,
    read_exchanges,
    read_pages,
)
from collector.demo.serving import listen_on, serve

ENGINE_VERSION = "0.32.0"
PAGE_TYPE = "text/plain; version=1.0.0; charset=utf-8"  # what this engine says, not 0.0.4
_LATENCY_SECONDS: Mapping[str, tuple[float, float]] = {
    "normal": (0.02, 0.05),
    "kvfull": (0.15, 0.35),
}


class SceneOrder(BaseModel):
    """What `PUT /scene` takes: a scene for some targets, a set of answers for all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    targets: tuple[str, ...] = ()
    scene: str | None = None
    answers: str | None = None


class _Asked(msgspec.Struct):
    prompt: str


class RecordedTier:
    """The state of the tier: a player for each target, and the set of answers in force.

    `ports` maps the port of a target to its name; a request belongs to the target on whose port
    it came in, and the control route answers on every other port.
    """

    def __init__(
        self,
        players: Mapping[str, Player],
        *,
        ports: Mapping[int, str],
        answers: Answers,
        rng: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._players = players
        self._ports = ports
        self._answers = answers
        self._in_force = BASELINE
        self._rng = rng
        self._sleep = sleep

    def app(self) -> Starlette:
        """Return the application of all ports."""
        return Starlette(
            routes=[
                Route("/metrics", self.metrics),
                Route("/version", self.version),
                Route("/health", self.health),
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/scene", self.scene, methods=["PUT"]),
            ]
        )

    async def metrics(self, request: Request) -> Response:
        player = self._player(request)
        if player is None:
            return _not_here()
        return Response(player.next_page(), media_type=PAGE_TYPE)

    async def version(self, request: Request) -> Response:
        if self._player(request) is None:
            return _not_here()
        return JSONResponse({"version": ENGINE_VERSION})

    async def health(self, _request: Request) -> Response:
        return PlainTextResponse("")

    async def completions(self, request: Request) -> Response:
        player = self._player(request)
        if player is None:
            return _not_here()
        try:
            asked = msgspec.json.decode(await request.body(), type=_Asked)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return JSONResponse({"error": {"message": "prompt: expected a text"}}, 400)
        await self._sleep(self._rng.uniform(*_LATENCY_SECONDS[player.scene]))
        answer = self._answers.draw(asked.prompt, in_force=self._in_force)
        return Response(answer, media_type="application/json")

    async def scene(self, request: Request) -> Response:
        """Change what is played, whole or not at all."""
        if self._player(request) is not None:
            return _not_here()
        try:
            order = SceneOrder.model_validate_json(await request.body())
        except ValidationError as error:
            return JSONResponse({"detail": str(error)}, 422)
        problem = self._problem(order)
        if problem:
            return JSONResponse({"detail": problem}, 422)
        for name in order.targets:
            if order.scene is not None:
                self._players[name].play(SCENES[order.scene])
        if order.answers is not None:
            self._in_force = order.answers
        playing = {name: player.scene for name, player in self._players.items()}
        return JSONResponse({"playing": playing, "answers": self._in_force})

    def _problem(self, order: SceneOrder) -> str:
        unknown = [name for name in order.targets if name not in self._players]
        if unknown:
            return f"targets {unknown}: not of this tier; it has {list(self._players)}"
        if order.scene is not None and order.scene not in SCENES:
            return f"scene {order.scene!r}: expected one of {list(SCENES)}"
        if order.answers is not None and order.answers not in self._answers.sets:
            return f"answers {order.answers!r}: expected one of {list(self._answers.sets)}"
        return ""

    def _player(self, request: Request) -> Player | None:
        name = self._ports.get(request.scope["server"][1])
        return None if name is None else self._players[name]


def _not_here() -> Response:
    return JSONResponse({"detail": "not on this port"}, 404)


def recorded_tier(ports: Mapping[int, str], *, seed: int) -> RecordedTier:
    """Return a tier with the targets of `ports` (port to name), each at a place of its own."""
    rng = Random(seed)  # noqa: S311  # draws recordings, guards nothing
    recording = read_recording(read_pages(KV_FULL))
    calm = read_recording(read_pages(LOAD)[:1]).pages[0].rising
    players = {
        name: Player(recording, calm=calm, scene=SCENES["normal"], start=place)
        for place, name in enumerate(ports.values())
    }
    answers = Answers({name: read_exchanges(name) for name in SETS}, rng=rng)
    return RecordedTier(players, ports=ports, answers=answers, rng=rng)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the tier until the process is told to end."""
    parser = argparse.ArgumentParser(prog="collector.demo.tier")
    parser.add_argument("--target", action="append", required=True, metavar="NAME=PORT")
    parser.add_argument("--control", type=int, required=True, metavar="PORT")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    pairs = [text.partition("=") for text in given.target]
    ports = {int(port): name for name, _, port in pairs}
    tier = recorded_tier(ports, seed=given.seed)
    asyncio.run(serve(tier.app(), listen_on(*ports, given.control)))


if __name__ == "__main__":
    main()
