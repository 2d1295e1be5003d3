"""The configuration as types. `docs/configuration.md` is made from these descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SecretStr, field_validator

from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.records import Mode
from collector.discovery.settings import DiscoveryConfig
from collector.sources.credentials import CredentialFiles
from collector.sources.settings import NeighbourConfig, SourceConfig
from collector.sources.stored.settings import FromPrometheusConfig, PrometheusConfig
from collector.values import (
    BaseUrl,
    Cidr,
    HttpUrl,
    Listen,
    ListenAddress,
    Name,
    Seconds,
    StoreUrl,
    TargetId,
    WebhookSecret,
    host_port,
    refuse,
)
from detectors import DetectorConfig, default_detectors, repeated_names

Engine: TypeAlias = Literal[
    "auto",
    "vllm",
    "tgi",
    "sglang",
    "trtllm",
    "llamacpp",
    "lorax",
    "jetstream",
    "triton",
    "dynamo",
]
Role: TypeAlias = Literal["production", "shadow"]

_FROZEN = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
_MIB = 1_048_576
_LONGEST_RESEND = 300.0
_LONGEST_SCRAPE = 15.0
_HOUR = 3600.0
_DAY = 24 * _HOUR


def _id_of_url(data: dict[str, Any]) -> str:
    url = data.get("url", "")
    return host_port(url) if url else ""


def _timeout_of_lease(data: dict[str, Any]) -> float:
    """Return 15 s, or what fits twice into the shortest lease: slow pages are read, not lost."""
    tiers: Mapping[str, TierConfig] = data.get("tiers", {})
    return min([_LONGEST_SCRAPE, *(tier.breaker.lease_seconds / 2 for tier in tiers.values())])


class TargetConfig(BaseModel):
    """One replica of a tier. A bare URL in the list is short for `{url: …}`."""

    model_config = _FROZEN

    url: BaseUrl = Field(
        description="Address of the engine (`/metrics` is added), or with a path its page's."
    )
    id: TargetId = Field(
        default_factory=_id_of_url,
        description="Name that stays over restarts; `host:port` of the URL if not given.",
    )
    engine: Engine = Field(default="auto", description="Which engine; `auto` looks at its page.")
    request_slots: int | None = Field(
        default=None, ge=1, description="Most requests that run at once, if the page lacks it."
    )
    kv_cache_capacity_tokens: int | None = Field(
        default=None, ge=1, description="Tokens that the KV cache holds, if the page lacks it."
    )
    batch_token_budget: int | None = Field(
        default=None, ge=1, description="Most tokens in a batch (TGI), if the page lacks it."
    )
    region: Name | None = Field(default=None, description="Where it runs, for guards across many.")
    headers_file: Path | None = Field(
        default=None,
        description="File of headers that its server wants, lines `Name: value`; read again when "
        "it changes.",
    )
    bearer_token_file: Path | None = Field(
        default=None, description="File with a token that its server wants."
    )
    insecure_http: bool = Field(
        default=False, description="Send credentials over plain http to another machine."
    )
    from_prometheus: FromPrometheusConfig | None = Field(
        default=None,
        description="Read its metrics from a server that has them, not from its own page.",
    )
    sources: tuple[SourceConfig, ...] = Field(
        default=(),
        max_length=32,
        description="What else is read of it: its GPUs, allocator, container, logs (docs/sources).",
    )

    @property
    def credentials(self) -> CredentialFiles:
        """The files whose content is sent with every request to it."""
        return CredentialFiles(self.headers_file, self.bearer_token_file)


class BaselineConfig(BaseModel):
    """How the reference that drift is measured against comes to be."""

    model_config = _FROZEN

    requests: int = Field(
        default=20_000, ge=100, description="Requests collected before a first baseline is made."
    )
    auto_promote: bool = Field(
        default=False,
        description="Let the first baseline page and trip without a person's word. There is no "
        "backtest yet that it would have to pass: it is promoted at once, as it was collected.",
    )


class TierConfig(BaseModel):
    """One logical model service: a pool of interchangeable targets behind one route."""

    model_config = _FROZEN

    targets: tuple[TargetConfig, ...] = Field(
        default=(), description="The replicas, each a URL or a mapping; or see `discovery`."
    )
    discovery: tuple[DiscoveryConfig, ...] = Field(
        default=(), max_length=16, description="Where more targets are found (docs/discovery.md)."
    )
    template: Mapping[str, JsonValue] = Field(
        default_factory=dict,
        description="Keys of `targets[]` for every target that is found; `{host}`, `{port}`, "
        "`{id}` and `{label:NAME}` in text are filled in.",
    )
    neighbours: Mapping[Name, NeighbourConfig] = Field(
        default_factory=dict,
        max_length=256,
        description="What stands beside the tier and is read on its own, by name: clients, "
        "brokers, vector stores (docs/sources).",
    )
    role: Role = Field(default="production", description="`shadow` tiers are compared, not served.")
    shadow_of: str | None = Field(
        default=None, description="The production tier that a shadow tier is compared with."
    )
    mode: Mode | None = Field(default=None, description="As `mode` at the top, for this tier.")
    segments: tuple[Name, ...] = Field(
        default=(),
        max_length=64,
        description="Values of the dimension that splits request signals; all others are `other`.",
    )
    vocabulary_tokens: int = Field(
        default=128_000,
        ge=2,
        le=10_000_000,
        description="Tokens that its model knows (`vocab_size`): sharpens the entropy that is "
        "estimated from the listed candidates; no engine tells it.",
    )
    detectors: tuple[DetectorConfig, ...] = Field(
        default_factory=default_detectors,
        description="What is judged; a list replaces the default set.",
    )
    breaker: BreakerParameters = Field(
        default_factory=BreakerParameters, description="How the tier's breakers behave."
    )
    baseline: BaselineConfig = Field(
        default_factory=BaselineConfig, description="How baselines are made."
    )
    drift_may_shed: bool = Field(
        default=False,
        description="Let input drift, together with harm, shed the tier, not only alert.",
    )

    @field_validator("detectors")
    @classmethod
    def _names_differ(cls, value: tuple[DetectorConfig, ...]) -> tuple[DetectorConfig, ...]:
        repeated = repeated_names(value)
        if repeated:
            refuse(
                f"detectors of different names; {', '.join(map(repr, repeated))} comes twice",
                "give one of them a 'name'",
            )
        return value


class WebhookConfig(BaseModel):
    """An endpoint that is told of every breaker change, signed (Standard Webhooks)."""

    model_config = _FROZEN

    url: HttpUrl = Field(description="Where to post; https, unless `insecure_http` is true.")
    secret: WebhookSecret | None = Field(
        default=None, description="Signing secret, `whsec_…`; better from `${NAME}` or a file."
    )
    secret_file: Path | None = Field(default=None, description="File that holds the secret.")
    previous_secret: WebhookSecret | None = Field(
        default=None, description="The secret before; signs as well while receivers change over."
    )
    previous_secret_file: Path | None = Field(
        default=None, description="File that holds the secret before."
    )
    tiers: tuple[str, ...] = Field(default=(), description="Tiers it hears of; empty means all.")
    insecure_http: bool = Field(default=False, description="Allow http for this endpoint.")
    allow: tuple[Cidr, ...] = Field(
        default=(), description="Private networks that its address may lie in (`10.0.0.0/8`)."
    )
    timeout: Seconds = Field(default=5.0, description="Longest wait for its answer.")

    @property
    def secrets(self) -> tuple[SecretStr, ...]:
        """The secrets to sign with, the present one first; never empty once loaded."""
        return tuple(secret for secret in (self.secret, self.previous_secret) if secret)


class AlertmanagerConfig(BaseModel):
    """Alertmanagers that alerts are pushed to, besides the rules that Prometheus evaluates."""

    model_config = _FROZEN

    urls: tuple[HttpUrl, ...] = Field(
        min_length=1, description="Every member of the cluster; each is pushed to."
    )
    timeout: Seconds = Field(default=5.0, description="Longest wait for an answer.")
    resend: Seconds = Field(
        default=60.0, description="How often a firing alert is sent again; at most `5m`."
    )

    @field_validator("resend")
    @classmethod
    def _resent_before_it_ends(cls, value: float) -> float:
        if value > _LONGEST_RESEND:
            refuse("a duration of at most 5m", "what is not sent again ends in Alertmanager")
        return value


class FollowConfig(BaseModel):
    """A file of logged generations that is followed over rotation."""

    model_config = _FROZEN

    path: Path = Field(description="The file; it may appear later.")
    tier: str = Field(description="The tier that its lines belong to.")
    target: str | None = Field(default=None, description="The target, if the lines do not say.")
    segment: str | None = Field(default=None, description="The segment, if the lines do not say.")
    read_from: Literal["end", "start"] = Field(
        default="end",
        description="Where a file begins that is there before it was ever followed; history at its "
        "`start` counts as if it came now.",
    )


class IngestConfig(BaseModel):
    """Intake of logged generations."""

    model_config = _FROZEN

    workers: int = Field(default=1, ge=1, le=64, description="Processes that decode.")
    files: tuple[FollowConfig, ...] = Field(default=(), description="Files to follow.")
    max_line_bytes: int = Field(
        default=16 * _MIB,
        ge=1024,
        le=64 * _MIB,
        description="Longest line; a longer one counts as oversized.",
    )
    max_batch_bytes: int = Field(
        default=64 * _MIB,
        ge=1024,
        le=1024 * _MIB,
        description="Largest body of a request, unpacked.",
    )


class RetentionConfig(BaseModel):
    """How long the store keeps what it holds. Breakers and baselines are kept."""

    model_config = _FROZEN

    ticks: Seconds = Field(default=_DAY, description="Counts as counted, one row a tick.")
    minutes: Seconds = Field(default=35 * _DAY, description="Counts by the minute.")
    verdicts: Seconds = Field(default=35 * _DAY, description="Verdict history.")
    transitions: Seconds = Field(default=400 * _DAY, description="Audit of breaker transitions.")
    deliveries: Seconds = Field(default=7 * _DAY, description="Settled webhook deliveries.")
    annotations: Seconds = Field(default=400 * _DAY, description="What was noticed about targets.")


class AdmitConfig(BaseModel):
    """What `/v1/admit/{tier}` answers to a gateway."""

    model_config = _FROZEN

    deny_status: Literal[401, 403, 429, 503] = Field(
        default=503, description="Status of a refusal; nginx's auth_request knows 401 and 403."
    )


class Config(BaseModel):
    """The whole file."""

    model_config = _FROZEN

    tiers: Mapping[Name, TierConfig] = Field(min_length=1, description="The tiers, by name.")
    prometheus: Mapping[Name, PrometheusConfig] = Field(
        default_factory=dict,
        max_length=64,
        description="Servers that targets' metrics are read from (`from_prometheus`), by name.",
    )
    listen: ListenAddress = Field(
        default=Listen("127.0.0.1", 9731),
        description="Where the service listens; port 0 takes a free one.",
    )
    store: StoreUrl = Field(
        default="sqlite:///fusewire.db",
        repr=False,
        description="Where breakers, baselines, verdicts and audit are kept.",
    )
    snapshot: Path | None = Field(
        default=None,
        description="File for counts not yet stored; beside a SQLite store if not given.",
    )
    controller: Name = Field(
        default="fusewire", description="Name of this controller in what it sends."
    )
    scrape_interval: Seconds = Field(default=5.0, description="Time between scrapes of a target.")
    scrape_timeout: Seconds = Field(
        default_factory=_timeout_of_lease,
        description="Longest scrape; 15s, or half of the shortest lease, if not given. It may "
        "outlast the interval: a page that is slow under load is read late, not lost.",
    )
    tick: Seconds = Field(default=5.0, description="Length of a tick of counts.")
    mode: Mode = Field(
        default="observe",
        description="`observe` records what it would do; `enforce` sheds and ejects.",
    )
    token_file: Path | None = Field(
        default=None,
        description="File of bearer tokens, one a line, that changes over HTTP must present.",
    )
    webhooks: Mapping[Name, WebhookConfig] = Field(
        default_factory=dict, description="Endpoints that are told of breaker changes, by name."
    )
    alertmanager: AlertmanagerConfig | None = Field(
        default=None, description="Push alerts to Alertmanager; off if not given."
    )
    ingest: IngestConfig = Field(
        default_factory=IngestConfig, description="Intake of logged generations."
    )
    admit: AdmitConfig = Field(
        default_factory=AdmitConfig, description="Answers to gateways that ask."
    )
    retention: RetentionConfig = Field(
        default_factory=RetentionConfig, description="How long the store keeps what it holds."
    )
    series_limit: int = Field(
        default=100_000, ge=1000, description="Most series on the metrics page."
    )

    def mode_of(self, tier: str) -> Mode:
        """Return the mode in force for a tier (`KeyError` if there is no such tier)."""
        return self.tiers[tier].mode or self.mode
