"""What a cluster says of a tier's pods and autoscaler, from a page of kube-state-metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from collector.sources.host.cluster_pages import ClusterPage, ClusterReader, KubeGlob, KubeName
from collector.sources.host.kube_pods import Pods
from collector.sources.host.kube_rows import NODE_CONDITION, REPLICAS, families
from collector.sources.host.kube_scaling import scaling
from collector.sources.looking import Eye, LookSource, Moment, Seen
from collector.sources.page.page import Page
from collector.sources.protocols import Place, Source, Tools
from collector.values import HttpUrl, Seconds, refuse

POD_SIGNALS: Final = frozenset(
    {"restarts_total", "memory_limit_bytes", "gpu_limit_gpus", "node_pressure"}
)
SCALING_SIGNALS: Final = frozenset({*(row.signal for row in REPLICAS), "scaling_limited"})


class KubeStateConfig(BaseModel):
    """Restarts, limits, node pressure and autoscaling, from a page of kube-state-metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["kube_state"] = "kube_state"
    url: HttpUrl = Field(description="Address of the page, with its path.")
    namespace: KubeName = Field(description="Namespace of the pods.")
    pod: KubeGlob | None = Field(
        default=None, description="Name of the pods; `*` and `?` for the part that changes."
    )
    container: KubeGlob = Field(default="*", description="Name of the container in the pods.")
    workload: KubeName | None = Field(
        default=None, description="Deployment or StatefulSet whose replicas are told."
    )
    autoscaler: KubeName | None = Field(
        default=None, description="HorizontalPodAutoscaler; else the one that scales `workload`."
    )
    bearer_token_file: Path | None = Field(
        default=None, description="File with a token for the page; read anew when it changes."
    )
    insecure_http: bool = Field(
        default=False, description="Send the token over plain http to another machine."
    )
    ca_file: Path | None = Field(
        default=None, description="Certificates, in PEM form, that the server's is checked against."
    )
    interval: Seconds = Field(default=30.0, description="Time between reads.")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.pod or self.workload or self.autoscaler):
            refuse("one or more of pod, workload and autoscaler", "none of them came")
        return self

    @property
    def pods(self) -> str | None:
        """The pods that are meant: named, or those of the workload."""
        return self.pod or (f"{self.workload}-*" if self.workload else None)

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        page = ClusterPage(
            url=self.url,
            namespace=self.namespace,
            families=families(),
            also=(NODE_CONDITION,),
            token_file=self.bearer_token_file,
            insecure_http=self.insecure_http,
            ca_file=self.ca_file,
        )
        reader = ClusterReader(page, tools)
        cluster = _Cluster(self)

        async def look(moment: Moment) -> Seen:
            return await reader.read(lambda page: cluster.seen(page, moment))

        offers = POD_SIGNALS if self.pods else frozenset()
        if self.workload or self.autoscaler:
            offers |= SCALING_SIGNALS
        return LookSource(Eye(self.kind, offers, look, close=reader.close), place, tools)


class _Cluster:
    """Gives pages their meaning; what must be remembered between them is of the pods."""

    def __init__(self, settings: KubeStateConfig) -> None:
        self._settings = settings
        pods = settings.pods
        self._pods = Pods(settings.namespace, pods, settings.container) if pods else None

    def seen(self, page: Page, moment: Moment) -> Seen:
        it = self._settings
        pods = self._pods.seen(page, moment) if self._pods else Seen()
        scaled = Seen()
        if it.workload or it.autoscaler:
            scaled = scaling(page, it.namespace, it.workload, it.autoscaler)
        return Seen(
            values={**pods.values, **scaled.values},
            parts=pods.parts,
            absent={**pods.absent, **scaled.absent},
            findings=(*pods.findings, *scaled.findings),
            noticed=pods.noticed,
            restarted=pods.restarted,
            outcome=pods.outcome,
        )
