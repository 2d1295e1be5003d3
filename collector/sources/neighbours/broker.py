"""A broker between clients and the tier: how much waits in it, against what may wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from collector.sources.credentials import may_leak
from collector.sources.engine.engines import Alias, Engine, Row, Term
from collector.sources.fetch import FetchError, Outcome
from collector.sources.neighbours.asked import AskedSource, Found, Secret, secret_text
from collector.sources.neighbours.client import ClientSource, selector, unbounded
from collector.sources.neighbours.nats_streams import nats_depth
from collector.sources.neighbours.rabbitmq import rabbitmq_depth
from collector.sources.neighbours.redis_streams import RedisAddress, redis_depth
from collector.sources.neighbours.waiting import Depth
from collector.sources.other_pages import page_source
from collector.sources.protocols import Place, Source, Tools
from collector.values import Kind, Seconds, http_url, refuse
from detectors.records import Absence
from detectors.remarks import Finding

SIZE: Final = "client_queue_size"
BOUND: Final = "client_queue_bound"
_REDIS: Final = frozenset({"redis", "rediss"})
_PAGE_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    SIZE: (
        "rabbitmq_queue_messages",
        "rabbitmq_detailed_queue_messages",
        "kafka_consumergroup_lag",
        "kminion_kafka_consumer_group_topic_lag",
        "jetstream_consumer_num_pending",
        "redis_stream_length",
    ),
    BOUND: (),
}

QueueSignal: TypeAlias = Literal["client_queue_size", "client_queue_bound"]


def _address(value: str) -> str:
    """Check an address: of a monitoring port over HTTP, or of a Redis."""
    scheme, colon, rest = value.partition("://")
    if scheme not in _REDIS:
        return http_url(value)
    checked = http_url(f"http{colon}{rest}")
    path = urlsplit(checked).path
    if path and not (path[1:].isascii() and path[1:].isdigit()):
        refuse("redis://host:port/NUMBER", "the path is the number of a database")
    return f"{scheme}{checked.removeprefix('http')}"


BrokerUrl: TypeAlias = Annotated[str, AfterValidator(_address), Kind("URL")]


class BrokerConfig(BaseModel):
    """A queue, stream or topic that requests of the tier wait in, at its broker."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["broker"] = "broker"
    system: Literal["nats", "redis", "rabbitmq", "page"] = Field(
        description="What is asked: NATS' monitoring port, Redis itself, RabbitMQ's management "
        "API, or any page in the Prometheus format (Kafka by its lag exporter)."
    )
    url: BrokerUrl = Field(description="`http://…`, or for Redis `redis://host:port/database`.")
    queue: str = Field(
        default="", max_length=256, description="Name of the stream, list or queue; not of a page."
    )
    group: str = Field(
        default="",
        max_length=256,
        description="Consumer (NATS) or consumer group (Redis); the slowest one if not given.",
    )
    account: str = Field(default="", max_length=256, description="Account of NATS, if several.")
    vhost: str = Field(default="/", max_length=256, description="Virtual host of RabbitMQ.")
    bound: int | None = Field(
        default=None, ge=1, description="Most messages that may wait; wins over what is read."
    )
    names: Mapping[QueueSignal, str] = Field(
        default_factory=dict,
        description="Family of a page that feeds a signal, where it is not a well-known one; "
        'labels may choose series: `lag{group="a"}`.',
    )
    match: Mapping[str, str] = Field(
        default_factory=dict, description="Labels that every series of a page must carry."
    )
    username: str = Field(default="", max_length=256, description="User, if it wants one.")
    password: Secret | None = Field(default=None, description="Password; better from a file.")
    password_file: Path | None = Field(default=None, description="File that holds the password.")
    insecure: bool = Field(
        default=False, description="Send the password unencrypted to another machine."
    )
    interval: Seconds = Field(default=15.0, description="Time between reads.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = self.password is not None or self.password_file is not None
        if given and may_leak(self.url) and not self.insecure:
            refuse(
                "https:// or rediss://, as a password is sent", "encrypt, or set 'insecure: true'"
            )
        redis = urlsplit(self.url).scheme in _REDIS
        if redis is not (self.system == "redis"):
            refuse("a redis:// or rediss:// url for redis, http:// for all others", "change one")
        if (self.system == "page") is bool(self.queue):
            refuse("'queue' for every system but page", "a page's series are chosen by 'match'")
        if self.system != "page" and (self.names or self.match):
            refuse("'names' and 'match' for system page only", "remove them")
        if self.password is not None and self.password_file is not None:
            refuse("password or password_file, not both", "remove one")
        for text in self.names.values():
            selector(text)
        return self

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        if self.system == "page":
            return self._page(place, tools)
        offered = frozenset({SIZE, BOUND})
        asking = _Asking(self, tools)
        return AskedSource("broker", place, tools, offered=offered, ask=partial(asking.ask))

    def _page(self, place: Place, tools: Tools) -> Source:
        rows = []
        for signal, families in _PAGE_NAMES.items():
            own = next((text for name, text in self.names.items() if name == signal), "")
            terms = (selector(own),) if own else tuple(Term(family) for family in families)
            rows.append(Row(signal, tuple(Alias((term,)) for term in terms)))
        page = page_source(
            Engine("broker", "", tuple(rows)), place, tools, url=self.url, match=self.match
        )
        if self.bound is not None:
            page.learn({BOUND: float(self.bound)})
        return ClientSource(page)


@dataclass(frozen=True, slots=True)
class _Asking:
    """What one read of a broker needs."""

    config: BrokerConfig
    tools: Tools

    async def ask(self) -> Found:
        """Ask the broker once.

        Raises:
            FetchError: If it does not answer, or not in a way that can be read.
        """
        depth = await self._depth()
        findings = [Finding(code, SIZE, text) for code, text in depth.remarks]
        bound = self.config.bound or depth.bound
        values = {}
        absent = {}
        if depth.size is None:
            absent[SIZE] = Absence.NO_SAMPLE
        else:
            values[SIZE] = depth.size
        if bound is None:
            absent[BOUND] = Absence.NO_SAMPLE
            if depth.size is not None:
                findings.append(unbounded(depth.size))
        else:
            values[BOUND] = float(bound)
        return Found(values, absent, tuple(findings))

    async def _depth(self) -> Depth:
        config, client = self.config, self.tools.client
        password = await secret_text(config.password, config.password_file)
        login = (config.username, password)
        if config.system == "nats":
            return await nats_depth(
                client, config.url, config.queue, config.group, account=config.account
            )
        if config.system == "rabbitmq":
            return await rabbitmq_depth(client, config.url, config.vhost, config.queue, login=login)
        address = RedisAddress.parse(config.url, login)
        if address is None:
            raise FetchError(Outcome.URL, "the url cannot be used; expected redis://host:port/0")
        return await redis_depth(address, config.queue, config.group)
