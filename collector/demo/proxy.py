"""The reverse proxy inside the demo's gateway: spreads requests by ratio, and logs what came back.

Whether a request is let in at all is decided before it comes here, by the receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from random import Random

import httpx2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from collector.demo.client import UPSTREAM_HEADER
from collector.demo.intake import Generation, IntakeQueue


class Proxy:
    """Passes completions on to one of the targets. `ratio_of` says what share a target may get."""

    def __init__(
        self,
        targets: Mapping[str, str],
        *,
        ratio_of: Callable[[str], float],
        http: httpx2.AsyncClient,
        intake: IntakeQueue,
        rng: Random,
        clocks: tuple[Callable[[], datetime], Callable[[], float]],
    ) -> None:
        self._targets = targets
        self._ratio_of = ratio_of
        self._http = http
        self._intake = intake
        self._rng = rng
        self._now, self._monotonic = clocks
        self.passed: dict[str, int] = dict.fromkeys(targets, 0)
        self.unreachable = 0

    async def completions(self, request: Request) -> Response:
        """Answer with what a target answered; a good answer is logged as a generation."""
        body = await request.body()
        target = self._choose()
        if target is None:
            return _error(503, "no target admits requests", {"retry-after": "1"})
        began = self._monotonic()
        try:
            answer = await self._http.post(
                f"{self._targets[target]}/v1/completions",
                content=body,
                headers={"content-type": "application/json"},
            )
        except httpx2.HTTPError as error:
            self.unreachable += 1
            return _error(502, f"target {target}: {type(error).__name__}")
        self.passed[target] += 1
        if answer.status_code == httpx2.codes.OK:
            self._log(request, target, self._monotonic() - began, (body, answer.content))
        return Response(answer.content, answer.status_code, media_type="application/json")

    async def health(self, _request: Request) -> Response:
        """Tell what was passed on, and how the log of generations stands."""
        intake = self._intake
        return JSONResponse(
            {
                "passed": self.passed,
                "unreachable": self.unreachable,
                "generations": {
                    "queued": len(intake),
                    "sent": intake.sent,
                    "dropped": intake.dropped,
                    "lost": intake.lost,
                    "problem": intake.problem,
                },
            }
        )

    def _choose(self) -> str | None:
        names = list(self._targets)
        weights = [max(self._ratio_of(name), 0.0) for name in names]
        return self._rng.choices(names, weights)[0] if sum(weights) > 0 else None

    def _log(
        self, request: Request, target: str, seconds: float, bodies: tuple[bytes, bytes]
    ) -> None:
        sent, received = bodies
        self._intake.offer(
            Generation(
                at=self._now(),
                target=target,
                segment=request.headers.get(UPSTREAM_HEADER, ""),
                latency_seconds=seconds,
                request=sent,
                response=received,
            )
        )


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    body = {"error": {"message": message, "type": "gateway_error", "param": None, "code": status}}
    return JSONResponse(body, status, headers=headers)
