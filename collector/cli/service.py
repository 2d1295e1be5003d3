"""The running service, asked over HTTP; commands fall back to the database if it is silent.

What answers may be the service of another configuration. Reading commands warn of that; nothing
is changed there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click
import httpx2
import msgspec
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from collector.cli.output import fail, printable
from collector.config import Config
from collector.token_file import token_lines

T = TypeVar("T")
CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 10.0
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  # to call, not to listen on
_UNFIT = range(500, 600)


class SilentError(Exception):
    """Nothing usable answers at the service's address; the message says what came instead."""


class RefusedError(Exception):
    """The service answers and refuses (4xx); the message says why, as it does."""


class _Trouble(msgspec.Struct):
    """One thing that is wrong with a request, as FastAPI says it."""

    msg: str
    loc: list[str | int] = []


class _Detail(msgspec.Struct):
    detail: str | list[_Trouble] = ""


class TierIdentity(BaseModel):
    """A tier as the service runs it."""

    model_config = ConfigDict(frozen=True)

    id: str
    mode: str


class Identity(BaseModel):
    """What a service says that it is (`GET /v1/state`)."""

    model_config = ConfigDict(frozen=True)

    controller: str
    tiers: list[TierIdentity]


@dataclass(frozen=True, slots=True)
class Service:
    """The service of a configuration. Every call opens its own connection: commands are short.

    `controller` and `tiers` are what the configuration names; `post` asks first whether they are
    what answers.
    """

    url: str
    controller: str
    tiers: frozenset[str]
    token: str = ""

    def get(self, path: str, shape: type[T], **query: str | int) -> T:
        """Return the answer of a route.

        Raises:
            SilentError: If the service does not answer, or not as this build would.
        """
        return self._call("GET", path, shape, query=query)

    def post(self, path: str, shape: type[T], body: dict[str, str | float | None]) -> T:
        """Post to a route and return its answer; end the command if it is another service.

        Raises:
            SilentError: As `get`.
            RefusedError: If the service refuses.
        """
        self.stop_if_other()
        return self._call("POST", path, shape, body=body)

    def identity(self) -> Identity:
        """Return what the service says that it is (`SilentError` as `get`)."""
        return self.get("/v1/state", Identity)

    def difference(self) -> str:
        """Say how what answers differs from the configuration; empty if it does not.

        Raises:
            SilentError: As `get`.
        """
        found = self.identity()
        tiers = frozenset(tier.id for tier in found.tiers)
        if (found.controller, tiers) == (self.controller, self.tiers):
            return ""
        return (
            f"{self.url} is controller {found.controller!r} with {_tier_words(tiers)}, the "
            f"configuration names controller {self.controller!r} with {_tier_words(self.tiers)}"
        )

    def stop_if_other(self) -> None:
        """End the command if what answers is not the service of the configuration.

        Raises:
            SilentError: As `get`.
        """
        difference = self.difference()
        if difference:
            fail(
                f"{difference}; nothing was changed there. Name the configuration of that service "
                "with --config, or reload the service if this file was changed"
            )

    def warn_if_other(self) -> None:
        """Say on stderr if what answers is not the service of the configuration.

        Raises:
            SilentError: As `get`.
        """
        difference = self.difference()
        if difference:
            click.echo(f"fusewire: warning: {printable(difference)}", err=True)

    def _call(
        self,
        method: str,
        path: str,
        shape: type[T],
        *,
        query: dict[str, str | int] | None = None,
        body: dict[str, str | float | None] | None = None,
    ) -> T:
        told = method == "POST" and self.token  # reading needs no token: nobody else gets it
        headers = {"authorization": f"Bearer {self.token}"} if told else {}
        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        try:
            with httpx2.Client(base_url=self.url, timeout=timeout, trust_env=False) as client:
                answer = client.request(method, path, params=query, json=body, headers=headers)
        except httpx2.HTTPError as error:
            msg = f"no answer from {self.url}: {str(error) or type(error).__name__}"
            raise SilentError(msg) from error
        if answer.status_code in _UNFIT or (method == "GET" and not answer.is_success):
            msg = f"{self.url} answered {answer.status_code}"
            raise SilentError(msg)
        if not answer.is_success:
            msg = f"{self.url}{path}: {answer.status_code}: {_detail(answer.content)}"
            raise RefusedError(msg)
        try:
            return TypeAdapter(shape).validate_json(answer.content)
        except ValidationError as error:
            msg = f"{self.url}{path} does not answer as Fusewire {method}s; is it another program?"
            raise SilentError(msg) from error


def _tier_words(tiers: frozenset[str]) -> str:
    return f"tiers {', '.join(sorted(tiers))}" if tiers else "no tiers"


def _detail(content: bytes) -> str:
    try:
        detail = msgspec.json.decode(content, type=_Detail).detail
    except msgspec.MsgspecError:
        detail = ""
    if not isinstance(detail, str):
        detail = "; ".join(map(_trouble_words, detail))
    return detail or "it gave no reason"


def _trouble_words(trouble: _Trouble) -> str:
    place = ".".join(map(str, trouble.loc[1:]))  # the first says body, query or path
    return f"{place}: {trouble.msg}" if place else trouble.msg


def service_of(config: Config, token_file: Path | None = None) -> Service:
    """Return the service of a configuration, with the token to change things."""
    host = _ANY_ADDRESS.get(config.listen.host, "")
    address = f"{host}:{config.listen.port}" if host else str(config.listen)
    return Service(
        f"http://{address}",
        config.controller,
        frozenset(config.tiers),
        _token(token_file or config.token_file),
    )


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        lines = token_lines(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        fail(f"token file {path}: cannot be read: {error}; name another with --token-file")
    if not lines:
        fail(f"token file {path}: it is empty; write a token to it")
    return lines[0]
