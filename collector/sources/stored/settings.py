"""Settings of servers that store metrics, and of targets that are read from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from collector.sources.credentials import CredentialFiles
from collector.values import HttpUrl, Name, Seconds, refuse

_FROZEN = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TENANT = re.compile(r"[A-Za-z0-9!*'()|._-]{1,150}")
_LONGEST_VALUE = 512


class PrometheusConfig(BaseModel):
    """A server that speaks Prometheus' query API: Prometheus, Thanos, Mimir, VictoriaMetrics."""

    model_config = _FROZEN

    url: HttpUrl = Field(
        description="Its address, up to where `/api/v1` begins (Mimir: `…/prometheus`)."
    )
    bearer_token_file: Path | None = Field(
        default=None, description="File with a token that is sent; read again when it changes."
    )
    basic_auth_file: Path | None = Field(
        default=None, description="File with `user:password`, instead of a token."
    )
    headers_file: Path | None = Field(
        default=None, description="File of further headers, lines `Name: value`."
    )
    insecure_http: bool = Field(
        default=False, description="Send credentials over plain http to another machine."
    )
    tenant: str | None = Field(
        default=None, description="Tenant, sent as `X-Scope-OrgID` (Mimir, Thanos)."
    )
    timeout: Seconds = Field(default=10.0, description="Longest wait for a whole answer.")
    stale_after: Seconds = Field(
        default=60.0, description="Samples older than this count as absent."
    )
    partial_response: bool | None = Field(
        default=None,
        description="Whether Thanos or a VictoriaMetrics cluster may answer without part of its "
        "data; its own default if not given.",
    )
    replica_labels: tuple[str, ...] = Field(
        default=(),
        max_length=16,
        description="Labels that tell copies of one scrape apart, besides the usual ones.",
    )
    batch: int = Field(default=20, ge=1, le=100, description="Most targets in one query.")
    concurrency: int = Field(default=4, ge=1, le=32, description="Most queries at a time.")
    ca_file: Path | None = Field(
        default=None, description="Certificates that its own must come from (PEM)."
    )
    verify: bool = Field(default=True, description="Check its certificate.")

    @field_validator("url")
    @classmethod
    def _is_base(cls, value: str) -> str:
        if "?" in value or value.endswith(("/api/v1", "/api/v1/query")):
            refuse("the address before /api/v1", "remove what begins with /api or ?")
        return value

    @field_validator("tenant")
    @classmethod
    def _is_tenant(cls, value: str | None) -> str | None:
        if value is not None and not _TENANT.fullmatch(value):
            refuse("a tenant of letters, digits and !*'()|._-", "write it as the server knows it")
        return value

    @field_validator("replica_labels")
    @classmethod
    def _are_labels(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for label in value:
            _check_label(label)
        return value

    @property
    def credentials(self) -> CredentialFiles:
        """The files whose content is sent along."""
        return CredentialFiles(self.headers_file, self.bearer_token_file, self.basic_auth_file)


class FromPrometheusConfig(BaseModel):
    """Where a target's metrics are read, when not from its own page."""

    model_config = _FROZEN

    server: Name = Field(description="Name of the server, in `prometheus`.")
    match: Mapping[str, str] = Field(
        min_length=1,
        max_length=16,
        description="Labels that all series of the target have there, and no others: "
        "`{instance: …}` or `{namespace: …, pod: …}`.",
    )

    @field_validator("match")
    @classmethod
    def _selects(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for label, wanted in value.items():
            _check_label(label)
            if not wanted or len(wanted) > _LONGEST_VALUE:
                refuse(f"a value for {label} of 1 to {_LONGEST_VALUE} letters", "write it out")
        return value


def _check_label(label: str) -> None:
    if label == "__name__" or not _LABEL.fullmatch(label):
        refuse(f"names of labels; {label!r} is none", "as in {instance: '10.0.0.7:8000'}")
