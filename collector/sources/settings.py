"""The sources that a configuration may name beside an engine's own page: one line a kind.

`SourceConfig` is of a target (its values join the target's scrapes), `NeighbourConfig` of what
stands beside a tier (a client, a broker, a vector store) and is a reading of its own.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from collector.sources.allocator import AllocatorConfig
from collector.sources.broker import BrokerConfig
from collector.sources.cadvisor import CadvisorConfig
from collector.sources.canary import CanaryConfig
from collector.sources.cgroup import CgroupConfig
from collector.sources.client import ClientConfig
from collector.sources.dcgm import DcgmConfig
from collector.sources.facts import FactsConfig
from collector.sources.kube_state import KubeStateConfig
from collector.sources.log_lines import LogConfig
from collector.sources.milvus import MilvusConfig
from collector.sources.nvml import NvmlConfig
from collector.sources.other_pages import PageConfig
from collector.sources.probe import ProbeConfig
from collector.sources.process_memory import ProcessConfig
from collector.sources.quota import QuotaConfig

SourceConfig: TypeAlias = Annotated[
    PageConfig
    | NvmlConfig
    | DcgmConfig
    | FactsConfig
    | ProbeConfig
    | CanaryConfig
    | AllocatorConfig
    | CgroupConfig
    | ProcessConfig
    | CadvisorConfig
    | KubeStateConfig
    | LogConfig,
    Field(discriminator="kind"),
]
NeighbourConfig: TypeAlias = Annotated[
    PageConfig
    | ClientConfig
    | QuotaConfig
    | BrokerConfig
    | MilvusConfig
    | CgroupConfig
    | ProcessConfig
    | CadvisorConfig
    | KubeStateConfig
    | LogConfig,
    Field(discriminator="kind"),
]
