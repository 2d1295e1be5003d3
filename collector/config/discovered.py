"""From what a discovery found to a target as if it stood in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue, ValidationError

from collector.config.models import Config, TargetConfig, TierConfig
from collector.discovery.found import Found
from collector.sources.scrape import metrics_url
from collector.values import host_port

_FIELD: Final = re.compile(r"\{([^{}]{1,140})\}")
_KNOWN: Final = ("host", "port", "id")


def target_of(template: Mapping[str, JsonValue], found: Found) -> TargetConfig:
    """Return the target that `found` is, with the keys of `template`.

    Raises:
        ValueError: If the two together are no target; the message says which key.
    """
    keys = {key: _filled(value, found) for key, value in template.items()}
    keys |= {"url": found.url, "id": found.id}
    if found.region:
        keys.setdefault("region", found.region)
    try:
        return TargetConfig.model_validate_json(json.dumps(keys), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        msg = f"{place}: {first['msg']}"
        raise ValueError(msg) from error


def with_targets(config: Config, found: Mapping[str, Sequence[TargetConfig]]) -> Config:
    """Return the configuration with discovered targets beside those of the file, which win.

    A server that is there already, under whatever id, would count twice and is left out.
    """
    tiers: dict[str, TierConfig] = {}
    for name, tier in config.tiers.items():
        taken = {target.id for target in tier.targets} | set(tier.neighbours)
        addresses = {_address(target) for target in tier.targets}
        more = []
        for one in found.get(name, ()):
            if one.id not in taken and _address(one) not in addresses:
                addresses.add(_address(one))
                more.append(one)
        targets = (*tier.targets, *more)
        tiers[name] = tier.model_copy(update={"targets": targets}) if more else tier
    return config.model_copy(update={"tiers": tiers})


def _address(target: TargetConfig) -> str:
    return metrics_url(str(target.url).rstrip("/"))


def _filled(value: JsonValue, found: Found) -> JsonValue:
    """Fill `{host}`, `{port}`, `{id}` and `{label:NAME}` in every text."""
    if isinstance(value, str):
        return _FIELD.sub(lambda match: _field(match[1], found), value)
    if isinstance(value, list):
        return [_filled(one, found) for one in value]
    if isinstance(value, dict):
        return {key: _filled(one, found) for key, one in value.items()}
    return value


def _field(name: str, found: Found) -> str:
    if name.startswith("label:"):
        return found.labels.get(name.removeprefix("label:"), "")
    if name not in _KNOWN:
        msg = f"unknown placeholder {{{name}}}; known: {{host}}, {{port}}, {{id}}, {{label:NAME}}"
        raise ValueError(msg)
    host, _, port = host_port(found.url).rpartition(":")
    return {"host": host, "port": port, "id": found.id}[name]
