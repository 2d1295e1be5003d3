"""The kinds of values that a configuration is written in: durations, addresses, names, secrets."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, NoReturn, TypeAlias
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

Network: TypeAlias = IPv4Network | IPv6Network

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_TARGET_ID = re.compile(r"[A-Za-z0-9\[]([A-Za-z0-9._:\[\]-]{0,126}[A-Za-z0-9\]])?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+")
_SECRET_PREFIX = "whsec_"  # noqa: S105  # the public mark of such secrets, not one
_SECRET_SIZES = range(24, 65)  # bytes; Standard Webhooks
_STORES = ("sqlite", "postgres", "postgresql", "postgresql+psycopg")


@dataclass(frozen=True, slots=True)
class Kind:
    """What the documentation calls a type of value."""

    words: str


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the service listens. Port 0 lets the system choose a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the listener."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def refuse(expected: str, remedy: str = "") -> NoReturn:
    """Refuse the value at hand; the translation to a `Problem` adds what came.

    Raises:
        PydanticCustomError: Always.
    """
    kind = "fusewire"
    template = "expected {expected}; {remedy}"
    raise PydanticCustomError(kind, template, {"expected": expected, "remedy": remedy})


def duration_seconds(text: str) -> float:
    """Return a duration in seconds.

    >>> duration_seconds("250ms"), duration_seconds("2m")
    (0.25, 120.0)

    Raises:
        PydanticCustomError: If it is not a number with one of the units ms, s, m, h, d.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        refuse("a duration like 5s, 250ms, 2m or 24h", "write a number and its unit")
    return float(match.group(1)) * _UNITS[match.group(2)]


def duration_text(seconds: float) -> str:
    """Return seconds as a configuration would write them.

    >>> duration_text(120.0), duration_text(0.25), duration_text(86_400.0)
    ('2m', '250ms', '24h')
    """
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    if seconds > 2 * _UNITS["d"] and seconds % _UNITS["d"] == 0:
        return f"{seconds / _UNITS['d']:g}d"
    for unit in ("h", "m"):
        if seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    return f"{seconds:g}s"


def _duration(value: object, info: ValidationInfo) -> object:
    """Read a duration; plain seconds come from Python only, in a file they lack a unit."""
    if isinstance(value, str):
        return duration_seconds(value)
    if info.mode == "json":
        refuse("a duration like 5s, 250ms, 2m or 24h", "write the unit, too")
    return value


def parse_listen(value: object) -> Listen:
    """Read `host:port`; brackets around an IPv6 host."""
    if isinstance(value, Listen):
        return value
    expected, remedy = "host:port", "write for example 127.0.0.1:9731 or [::1]:9731"
    if not isinstance(value, str):
        refuse(expected, remedy)
    host, colon, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not _HOST.fullmatch(host) or (":" in host) is not bracketed:
        refuse(expected, remedy)
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:  # noqa: PLR2004  # TCP
        refuse("a port from 0 to 65535 after the last colon", remedy)
    return Listen(host, int(port))


def _split(value: str) -> SplitResult:
    expected, remedy = "an http or https URL", "write for example http://127.0.0.1:8000"
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        refuse("a URL with a port from 1 to 65535", remedy)
    if parts.scheme not in {"http", "https"} or not parts.hostname or re.search(r"\s", value):
        refuse(expected, remedy)
    if not _HOST.fullmatch(parts.hostname) or port == 0:
        refuse(expected, remedy)
    return parts


def http_url(value: str) -> str:
    """Return an http or https URL without a trailing slash; credentials in it are refused."""
    parts = _split(value)
    if parts.username is not None or parts.password is not None:
        refuse("a URL without user and password", "put credentials in a file, URLs are logged")
    if parts.fragment:
        refuse("a URL without '#…'", "remove the part after '#'")
    return value.rstrip("/")


def base_url(value: str) -> str:
    """Return the address of an engine or of its metrics page."""
    url = http_url(value)
    if urlsplit(url).query:
        refuse("an address without '?…'", "remove the part after '?'")
    return url


def host_port(url: str) -> str:
    """Return `host:port` of a URL that was checked, the default id of a target.

    >>> host_port("https://a.example/x")
    'a.example:443'
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def store_url(value: str) -> str:
    """Check the address of the store: a SQLite file or a PostgreSQL database."""
    scheme, _, rest = value.partition("://")
    remedy = "write for example sqlite:///fusewire.db or postgresql://user:…@host/fusewire"
    if scheme not in _STORES or not rest:
        refuse("sqlite:///FILE or postgresql://…", remedy)
    if scheme == "sqlite" and (not rest.startswith("/") or rest in {"/", "/:memory:"}):
        refuse("a SQLite file, control state must outlive the process", remedy)
    return value


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        refuse(
            "a name of up to 64 letters, digits, '.', '_' and '-'",
            "it becomes a metric label and part of addresses",
        )
    return value


def _target_id(value: str) -> str:
    if not _TARGET_ID.fullmatch(value):
        refuse(
            "an id of up to 128 letters, digits, '.', '_', ':' and '-'",
            "it becomes a metric label and part of addresses",
        )
    return value


def webhook_secret(value: SecretStr) -> SecretStr:
    """Check a secret of Standard Webhooks: `whsec_` and base64 of 24 to 64 bytes."""
    text = value.get_secret_value()
    expected = "'whsec_' followed by base64 of 24 to 64 random bytes"
    remedy = "make one: echo whsec_$(openssl rand -base64 32)"
    try:
        size = len(base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True))
    except (binascii.Error, ValueError):
        refuse(expected, remedy)
    if not text.startswith(_SECRET_PREFIX) or size not in _SECRET_SIZES:
        refuse(expected, remedy)
    return value


def parse_network(value: object) -> Network:
    """Read an IP network in CIDR form."""
    expected, remedy = "a network like 10.0.0.0/8", "an address alone is written 10.0.0.1/32"
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    if not isinstance(value, str) or "/" not in value:
        refuse(expected, remedy)
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        refuse(f"{expected}, without bits set beyond its length", remedy)


Seconds: TypeAlias = Annotated[float, BeforeValidator(_duration), Field(gt=0), Kind("duration")]
ListenAddress: TypeAlias = Annotated[
    Listen, PlainValidator(parse_listen), PlainSerializer(str), Kind("host:port")
]
Cidr: TypeAlias = Annotated[Network, PlainValidator(parse_network), Kind("network")]
HttpUrl: TypeAlias = Annotated[str, AfterValidator(http_url), Kind("URL")]
BaseUrl: TypeAlias = Annotated[str, AfterValidator(base_url), Kind("URL")]
StoreUrl: TypeAlias = Annotated[str, AfterValidator(store_url), Kind("database URL")]
Name: TypeAlias = Annotated[str, AfterValidator(_name), Kind("name")]
TargetId: TypeAlias = Annotated[str, AfterValidator(_target_id), Kind("id")]
WebhookSecret: TypeAlias = Annotated[SecretStr, AfterValidator(webhook_secret), Kind("secret")]
