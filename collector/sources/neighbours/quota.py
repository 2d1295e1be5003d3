"""A provider's quota: how much of it is used, by rate-limit headers or by a usage endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from collector.sources.credentials import may_leak
from collector.sources.fetch import FetchError, Outcome
from collector.sources.neighbours.asked import (
    Answer,
    AskedSource,
    Found,
    Secret,
    amount,
    answer,
    document_of,
    secret_text,
)
from collector.sources.neighbours.quota_headers import Quota, quotas_of
from collector.sources.protocols import Place, Source, Tools
from collector.values import HttpUrl, Seconds, refuse
from detectors.records import Absence
from detectors.remarks import Finding

SIGNAL: Final = "client_quota_used_ratio"
_MAX_QUOTAS: Final = 16
_FROZEN = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
_HINTS: Final[Mapping[int, str]] = {
    401: "it wants credentials: set token or token_file",
    403: "the credentials may not read this; use a key that may",
    404: "there is nothing at this url",
    405: "it does not answer this method; set method to the other one",
    429: "the quota is used up, and the answer does not say until when",
}


class UsageConfig(BaseModel):
    """Where one quota stands in the JSON of a usage endpoint: two of used, remaining and limit."""

    model_config = _FROZEN

    name: str = Field(default="requests", max_length=64, description="What is counted, in words.")
    used: str = Field(default="", description="JSON pointer to what is used (`/usage/tokens`).")
    remaining: str = Field(default="", description="JSON pointer to what is left.")
    limit: str | float = Field(
        default="", description="JSON pointer to the quota, or the quota itself as a number."
    )

    @field_validator("used", "remaining", "limit")
    @classmethod
    def _pointer(cls, value: str | float) -> str | float:
        if isinstance(value, str):
            if value and not value.startswith("/"):
                refuse("a JSON pointer, which begins with '/'", f"{value!r} does not")
        elif value <= 0.0:
            refuse("a quota above 0", "leave it away if it is not known")
        return value

    @model_validator(mode="after")
    def _two(self) -> Self:
        if sum(it != "" for it in (self.used, self.remaining, self.limit)) != 2:  # noqa: PLR2004  # two make the third
            refuse("exactly two of used, remaining and limit", "the third follows from them")
        return self


class QuotaConfig(BaseModel):
    """How much of a provider's quota is used, by the headers of an answer or by its JSON."""

    model_config = _FROZEN

    kind: Literal["quota"] = "quota"
    url: HttpUrl = Field(description="What to ask; its answer carries the headers or the JSON.")
    method: Literal["HEAD", "GET"] = Field(
        default="GET", description="`HEAD` is cheaper where the provider answers it."
    )
    token: Secret | None = Field(default=None, description="The key; better from a file.")
    token_file: Path | None = Field(default=None, description="File that holds the key.")
    token_header: str = Field(
        default="authorization",
        pattern=r"^[A-Za-z0-9-]{1,64}$",
        description="Header of the key: with `authorization` it follows `Bearer`, with any other "
        "(`api-key`, `x-api-key`) it stands alone.",
    )
    headers: Mapping[str, str] = Field(
        default_factory=dict, description="Other headers to send, such as `anthropic-version`."
    )
    limits: Mapping[str, float] = Field(
        default_factory=dict,
        max_length=_MAX_QUOTAS,
        description="Quotas by name (`requests`, `tokens`) for answers that tell only what is "
        "left; they win over what an answer says.",
    )
    usage: tuple[UsageConfig, ...] = Field(
        default=(),
        max_length=_MAX_QUOTAS,
        description="Quotas in the JSON of the answer; without any, its headers are read.",
    )
    insecure_http: bool = Field(
        default=False, description="Send the key over plain http to another machine."
    )
    interval: Seconds = Field(default=60.0, description="Time between reads; each is a request.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = self.token is not None or self.token_file is not None
        if given and may_leak(str(self.url)) and not self.insecure_http:
            refuse("https, as a key is sent", "use https, or set 'insecure_http: true'")
        if self.token is not None and self.token_file is not None:
            refuse("token or token_file, not both", "remove one")
        if self.usage and self.method == "HEAD":
            refuse("method GET where 'usage' is set", "an answer to HEAD has no JSON")
        return self

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        offered = frozenset({SIGNAL})
        return AskedSource("quota", place, tools, offered=offered, ask=_Asking(self, tools).ask)


@dataclass(frozen=True, slots=True)
class _Asking:
    """What one read of a quota needs."""

    config: QuotaConfig
    tools: Tools

    async def ask(self) -> Found:
        """Ask the provider once.

        Raises:
            FetchError: If its answer says nothing of a quota and is a failure.
        """
        config = self.config
        headers = {"accept": "application/json", **config.headers}
        token = await secret_text(config.token, config.token_file)
        if token:
            bearer = config.token_header.lower() == "authorization"
            headers[config.token_header] = f"Bearer {token}" if bearer else token
        got = await answer(self.tools.client, str(config.url), headers, method=config.method)
        if config.usage:
            document = document_of(got, _HINTS)
            return found_in([_usage(it, document) for it in config.usage])
        return found_in(self._told(got))

    def _told(self, got: Answer) -> list[Quota]:
        """Return the quotas of the headers, which a refusal may carry as well."""
        quotas = [
            Quota(
                it.name, self.config.limits.get(it.name, it.limit), it.remaining, it.reset_seconds
            )
            for it in quotas_of(got.headers, self.tools.now())
        ]
        if not quotas and not 200 <= got.status < 300:  # noqa: PLR2004  # HTTP
            hint = _HINTS.get(got.status, "expected an answer with rate-limit headers")
            raise FetchError(Outcome.STATUS, f"answered {got.status}: {hint}")
        return quotas


def found_in(quotas: Sequence[Quota]) -> Found:
    """Return the share used of the quota that is used most, and which are used up."""
    ratios = [it.used_ratio for it in quotas]
    known = [ratio for ratio in ratios if ratio is not None]
    findings = tuple(_used_up(it) for it in quotas if it.remaining == 0.0)
    if not known:
        absence = Absence.UNUSABLE if quotas else Absence.NO_FAMILY
        if quotas and not findings:
            names = ", ".join(it.name for it in quotas)
            text = f"the answer tells what is left of {names} and not of how much; set 'limits'"
            findings = (Finding("quota_limit_unknown", SIGNAL, text),)
        return Found({}, {SIGNAL: absence}, findings)
    return Found({SIGNAL: max(known)}, findings=findings)


def _used_up(quota: Quota) -> Finding:
    wait = "" if quota.reset_seconds is None else f", and is back in {quota.reset_seconds:.0f} s"
    text = f"the quota of {quota.name} is used up{wait}; send less at once, or ask for more"
    return Finding("quota_exhausted", SIGNAL, text)


def _usage(config: UsageConfig, document: object) -> Quota:
    used, remaining = _at(document, config.used), _at(document, config.remaining)
    limit = _at(document, config.limit) if isinstance(config.limit, str) else config.limit
    if config.limit == "" and used is not None and remaining is not None:
        limit = used + remaining
    if config.remaining == "" and used is not None and limit is not None:
        remaining = max(limit - used, 0.0)
    return Quota(config.name, limit, remaining)


def _at(document: object, pointer: str) -> float | None:
    """Return the number at a JSON pointer (RFC 6901); None if there is none."""
    if not pointer:
        return None
    found = document
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and key.isascii() and key.isdigit() and len(key) < 10:  # noqa: PLR2004  # digits of an index
            found = found[int(key)] if int(key) < len(found) else None
        else:
            return None
    if isinstance(found, str):  # some write numbers as text
        try:
            found = float(found)
        except ValueError:
            return None
    return amount(found)
