"""What the demo sees of the service: its answers, read as anyone could read them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import httpx2
import msgspec

FactT = TypeVar("FactT")


class WatchError(Exception):
    """The service did not answer, or not as expected; the message says where and what."""


class VerdictFact(msgspec.Struct, frozen=True):
    """One verdict as `GET /v1/verdicts` tells it."""

    at: datetime
    tier: str
    scope: str
    signal: str
    level: str
    detector: str = ""
    reason: str = ""
    cause: str = ""

    @property
    def words(self) -> str:
        """What the verdict says, as the timeline tells it."""
        return f"{self.signal}, {self.scope}: {self.reason}"


class BreakerFact(msgspec.Struct, frozen=True):
    """One breaker as `GET /v1/breakers` tells it; an empty target means the tier's own."""

    tier: str
    target: str
    state: str
    shown_state: str
    effective_ratio: float


class TransitionFact(msgspec.Struct, frozen=True):
    """One audit row as `GET /v1/transitions` tells it."""

    at: datetime
    tier: str
    target: str
    kind: str
    reason: str = ""
    actor: str = ""
    dry_run: bool = False

    @property
    def breaker(self) -> str:
        return f"target {self.target}" if self.target else f"tier {self.tier}"

    @property
    def words(self) -> str:
        """What the transition says, as the timeline tells it."""
        return f"{self.breaker}{' (observe only)' if self.dry_run else ''}: {self.reason}"


class BaselineFact(msgspec.Struct, frozen=True):
    """The baseline of one scope, made or still collecting."""

    scope: str
    stage: str
    requests: int = 0
    needed: int = 0


class TierFact(msgspec.Struct, frozen=True):
    """One tier as `GET /v1/tiers` tells it."""

    tier: str
    mode: str
    baselines: list[BaselineFact] = []


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that one look at the service showed."""

    verdicts: tuple[VerdictFact, ...] = ()
    breakers: tuple[BreakerFact, ...] = ()
    transitions: tuple[TransitionFact, ...] = ()
    tiers: tuple[TierFact, ...] = ()

    def breaker(self, target: str) -> BreakerFact | None:
        """Return the breaker of `target` (empty: of the tier), or None."""
        return next((row for row in self.breakers if row.target == target), None)

    def baseline(self, scope: str) -> BaselineFact | None:
        rows = [row for tier in self.tiers for row in tier.baselines if row.scope == scope]
        return rows[0] if rows else None


class Service:
    """Reads the service under `url` (without a trailing slash)."""

    def __init__(self, http: httpx2.AsyncClient, *, url: str) -> None:
        self._http = http
        self._url = url

    async def ready(self) -> bool:
        """Return whether the service says that it is ready; no answer is a no."""
        try:
            response = await self._http.get(f"{self._url}/-/ready")
        except httpx2.HTTPError:
            return False
        return response.status_code == httpx2.codes.OK

    async def look(self) -> Facts:
        """Read everything the story needs.

        Raises:
            WatchError: If an answer does not come, or cannot be read.
        """
        return Facts(
            verdicts=tuple(await self._list("/v1/verdicts?limit=500", list[VerdictFact])),
            breakers=tuple(await self._list("/v1/breakers", list[BreakerFact])),
            transitions=tuple(await self._list("/v1/transitions?limit=100", list[TransitionFact])),
            tiers=tuple(await self._list("/v1/tiers", list[TierFact])),
        )

    async def _list(self, path: str, shape: type[list[FactT]]) -> list[FactT]:
        try:
            response = await self._http.get(self._url + path)
            response.raise_for_status()
            return msgspec.json.decode(response.content, type=shape)
        except httpx2.HTTPError as error:
            msg = f"GET {path}: {type(error).__name__}: {error}"
            raise WatchError(msg) from error
        except msgspec.MsgspecError as error:
            msg = f"GET {path}: not the expected form: {error}"
            raise WatchError(msg) from error
