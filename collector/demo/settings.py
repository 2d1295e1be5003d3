"""Fixed places of the demo: ports, names, rates. What Fusewire is told lies in `demo.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

import yaml

HOST = "127.0.0.1"
SERVICE_PORT = 9731
GATEWAY_PORT = 9740
TARGET_PORTS: Mapping[str, int] = MappingProxyType({"a": 9741, "b": 9742, "c": 9743})
CONTROL_PORT = 9744
TIER = "chat"
WEBHOOK_PATH = "/fusewire"
SECRET_VARIABLE = "FUSEWIRE_DEMO_SECRET"  # noqa: S105  # the name of the variable, not a secret
CONFIG_NAME = "demo.yaml"

# Requests a second of each upstream: what two cores carry with everything else of the demo.
RATES: Mapping[str, float] = MappingProxyType({"search": 27.0, "support": 27.0, "batch": 27.0})

_SHOWN = (
    ("mode",),
    ("scrape_interval",),
    ("tick",),
    ("baseline", "requests"),
    ("baseline", "auto_promote"),
    ("breaker", "breach_n"),
    ("breaker", "breach_m"),
    ("breaker", "open_base_seconds"),
    ("breaker", "lease_seconds"),
)


def ports() -> tuple[int, ...]:
    """Return every port that the demo listens on."""
    return (SERVICE_PORT, GATEWAY_PORT, *TARGET_PORTS.values(), CONTROL_PORT)


def address(port: int) -> str:
    """Return the URL of what listens on `port`, without a trailing slash."""
    return f"http://{HOST}:{port}"


def config_text() -> str:
    """Return the demo's configuration file."""
    return files("collector.demo").joinpath(CONFIG_NAME).read_text(encoding="utf-8")


def shown_settings(text: str) -> str:
    """Return the settings of a configuration file that matter for the story, as one line."""
    document = yaml.safe_load(text)
    tier = document["tiers"][TIER]
    found = []
    for path in _SHOWN:
        value = {**document, **tier}
        for key in path:
            value = value[key]
        found.append(f"{path[-1]} {value}")
    return ", ".join(found)
