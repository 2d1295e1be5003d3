"""Targets from a Kubernetes API server: the endpoints of a service, or pods by their labels.

The API is asked anew every `refresh`; nothing is written and one verb is needed: `list` on
endpointslices or on pods.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, Self
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ConfigDict, Field, model_validator

from collector.discovery import kubernetes_shapes as shapes
from collector.discovery.addresses import netloc, target
from collector.discovery.found import Discovery, DiscoveryError, Finders, Found
from collector.discovery.kubernetes_api import Access, Api
from collector.values import HttpUrl, Seconds, refuse

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NAME = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"


class KubernetesConfig(BaseModel):
    """Targets of a Kubernetes service, or pods that a label selector picks."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["kubernetes"] = "kubernetes"
    namespace: str | None = Field(
        default=None, pattern=_NAME, description="Namespace; the one Fusewire runs in if not given."
    )
    service: str | None = Field(
        default=None, pattern=_NAME, description="Service whose endpoints are the targets."
    )
    pods: str | None = Field(
        default=None, max_length=1024, description="Or a label selector of pods: `app=vllm`."
    )
    port: int | str | None = Field(
        default=None, description="Number or name of the port; needed where there are several."
    )
    scheme: Literal["http", "https"] = Field(default="http", description="How to talk to them.")
    api_server: HttpUrl | None = Field(
        default=None, description="The API server; the cluster's own if not given."
    )
    token_file: Path | None = Field(
        default=None, description="Bearer token; the pod's service account if not given."
    )
    ca_file: Path | None = Field(
        default=None, description="Certificate authority; the pod's service account's if not given."
    )
    refresh: Seconds = Field(default=10.0, description="Time between lists.")
    vanish_after: Seconds = Field(
        default=60.0, description="How long a target that is no longer listed stays."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.service is None) == (self.pods is None):
            refuse("either 'service' or 'pods'", "name the service whose endpoints are the targets")
        return self

    def build(self, tier: str, finders: Finders) -> Discovery:
        """Return the discovery; nothing is opened yet."""
        return Kubernetes(f"kubernetes:{tier}", self, finders.client)


class Kubernetes:
    """Lists the endpoints or pods, page by page."""

    def __init__(
        self,
        name: str,
        config: KubernetesConfig,
        client: httpx2.AsyncClient,
        *,
        account: Path = ACCOUNT,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.name = name
        self._config = config
        self._shared = client
        self._account = account
        self._environ = environ
        self._api: Api | None = None

    async def find(self) -> tuple[Found, ...]:
        """Return a target for every endpoint or pod.

        Raises:
            DiscoveryError: If the API cannot be reached, refuses, or answers nonsense.
        """
        api = self._opened()
        config, space = self._config, quote(self._namespace())
        if config.service is not None:
            selector = f"kubernetes.io/service-name={config.service}"
            path = f"/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices"
            slices = await api.every(path, selector, shapes.SLICES)
            return tuple(found for it in slices for found in self._of_slice(it))
        pods = await api.every(f"/api/v1/namespaces/{space}/pods", config.pods or "", shapes.PODS)
        return tuple(found for pod in pods for found in self._of_pod(pod))

    async def close(self) -> None:
        if self._api is not None:
            await self._api.close()
            self._api = None

    def _opened(self) -> Api:
        if self._api is None:
            self._api = Api(self.name, self._access(), self._shared)
        return self._api

    def _access(self) -> Access:
        config = self._config
        token = config.token_file or self._account / "token"
        authority = config.ca_file or self._account / "ca.crt"
        if config.api_server is not None:
            url = str(config.api_server).rstrip("/")
        else:
            host = self._environ.get("KUBERNETES_SERVICE_HOST", "")
            if not host:
                msg = f"{self.name}: not inside a cluster; set 'api_server' and 'token_file'"
                raise DiscoveryError(msg)
            url = f"https://{netloc(host, int(self._environ.get('KUBERNETES_SERVICE_PORT', 443)))}"
        trust: ssl.SSLContext | None = None
        if url.startswith("https:"):
            try:
                trust = ssl.create_default_context(
                    cafile=str(authority) if config.ca_file or authority.exists() else None
                )
            except (OSError, ssl.SSLError) as error:
                msg = f"{self.name}: ca_file {authority} cannot be used: {error}"
                raise DiscoveryError(msg) from error
        given = config.token_file is not None or token.exists()
        return Access(url, token if given else None, trust)

    def _namespace(self) -> str:
        if self._config.namespace is not None:
            return self._config.namespace
        try:
            return (self._account / "namespace").read_text(encoding="utf-8").strip()
        except OSError as error:
            msg = f"{self.name}: not inside a cluster; set 'namespace'"
            raise DiscoveryError(msg) from error

    def _of_slice(self, found: shapes.Slice) -> Iterator[Found]:
        serving = [it for it in found.endpoints if it.addresses and not it.conditions.terminating]
        if not serving:
            return  # of a service scaled to nothing the slice has no ports either
        ports = {port.name or "": port.port for port in found.ports if port.port is not None}
        port = self._port(ports, f"endpoint slice {found.metadata.name}")
        for endpoint in serving:
            pod = endpoint.target.name if endpoint.target else ""
            labels = {"pod": pod, "node": endpoint.node, "zone": endpoint.zone}
            yield target(
                netloc(endpoint.addresses[0], port),
                {key: value for key, value in labels.items() if value},
                id_=pod,
                scheme=self._config.scheme,
                ready=endpoint.conditions.ready is not False,
            )

    def _of_pod(self, pod: shapes.Pod) -> Iterator[Found]:
        gone = pod.metadata.deleted or pod.status.phase in {"Succeeded", "Failed"}
        if gone or not pod.status.ip:
            return
        listed = (port for container in pod.spec.containers for port in container.ports)
        ports = {port.name or str(port.port): port.port for port in listed}
        name = pod.metadata.name
        labels = {**pod.metadata.labels, "pod": name, "node": pod.spec.node}
        yield target(
            netloc(pod.status.ip, self._port(ports, f"pod {name}")),
            {key: value for key, value in labels.items() if value and key != "id"},
            id_=name,
            scheme=self._config.scheme,
            ready=any(it.type == "Ready" and it.status == "True" for it in pod.status.conditions),
        )

    def _port(self, ports: Mapping[str, int], where: str) -> int:
        """Return the port that is configured, or the only one.

        Raises:
            DiscoveryError: If there is no such port, or a choice.
        """
        wanted = self._config.port
        if isinstance(wanted, int):
            return wanted
        if wanted is not None and wanted in ports:
            return ports[wanted]
        if wanted is None and len(ports) == 1:
            return next(iter(ports.values()))
        listed = ", ".join(f"{name or 'unnamed'} ({port})" for name, port in sorted(ports.items()))
        asked = f"has no port named {wanted!r}" if wanted else "does not have exactly one port"
        msg = f"{self.name}: {where} {asked}, but {listed or 'none'}; set 'port'"
        raise DiscoveryError(msg)
