"""The sources that a configuration may name beside an engine's own page: one line a kind.

`SourceConfig` is of a target (its values join the target's scrapes), `NeighbourConfig` of what
stands beside a tier (a client, a broker, a vector store) and is a reading of its own.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from collector.sources.gpu.allocator import AllocatorConfig
from collector.sources.gpu.dcgm import DcgmConfig
from collector.sources.gpu.nvml import NvmlConfig
from collector.sources.host.cadvisor import CadvisorConfig
from collector.sources.host.cgroup import CgroupConfig
from collector.sources.host.kube_state import KubeStateConfig
from collector.sources.host.process_memory import ProcessConfig
from collector.sources.logs.lines import LogConfig
from collector.sources.neighbours.broker import BrokerConfig
from collector.sources.neighbours.client import ClientConfig
from collector.sources.neighbours.milvus import MilvusConfig
from collector.sources.neighbours.quota import QuotaConfig
from collector.sources.other_pages import PageConfig
from collector.sources.server.canary import CanaryConfig
from collector.sources.server.facts import FactsConfig
from collector.sources.server.probe import ProbeConfig

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
