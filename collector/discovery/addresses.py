"""From hosts, ports and labels to targets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from collector.discovery.found import Found

SCHEME: Final = "__scheme__"
PATH: Final = "__metrics_path__"
_ODD: Final = re.compile(r"[^A-Za-z0-9._:\[\]-]+")
_LONGEST_ID: Final = 128


def netloc(host: str, port: int | None) -> str:
    """Return `host:port`, an IPv6 address in brackets.

    >>> netloc("::1", 8000), netloc("a.example", None)
    ('[::1]:8000', 'a.example')
    """
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return shown if port is None else f"{shown}:{port}"


def target(
    address: str,
    labels: Mapping[str, str],
    *,
    id_: str = "",
    scheme: str = "http",
    ready: bool = True,
) -> Found:
    """Return the target at `address` (`host:port`); labels may say scheme, path, id and region.

    The path `/metrics` is what an address without one means, so it is left away.
    """
    scheme = labels.get(SCHEME, scheme)
    path = labels.get(PATH, "")
    path = "" if path in {"", "/", "/metrics"} else path
    name = labels.get("id", id_) or address
    return Found(
        id=_ODD.sub("-", name)[:_LONGEST_ID].strip("-._:"),
        url=f"{scheme}://{address}{path}",
        region=labels.get("region", ""),
        ready=ready,
        labels=dict(labels),
    )
