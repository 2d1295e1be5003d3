"""The kinds of discovery that a configuration may name: one line a kind."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from collector.discovery.dns import DnsConfig
from collector.discovery.file_sd import FileSdConfig
from collector.discovery.kubernetes import KubernetesConfig

DiscoveryConfig: TypeAlias = Annotated[
    FileSdConfig | DnsConfig | KubernetesConfig, Field(discriminator="kind")
]
