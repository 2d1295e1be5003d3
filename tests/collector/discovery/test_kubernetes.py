"""Targets of a Kubernetes service or of pods, from an API server on the loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from pydantic import ValidationError

from collector.discovery.found import DiscoveryError, Found
from collector.discovery.kubernetes import Kubernetes, KubernetesConfig
from tests.collector.discovery.api_server import ApiServer, Json, an_api_server

pytestmark = pytest.mark.anyio

SLICES = "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices"
PODS = "/api/v1/namespaces/llm/pods"


def an_endpoint(pod: str, address: str, *, ready: bool = True, terminating: bool = False) -> Json:
    return {
        "addresses": [address],
        "conditions": {"ready": ready, "serving": ready, "terminating": terminating},
        "nodeName": "gpu-1",
        "targetRef": {"kind": "Pod", "namespace": "llm", "name": pod, "uid": "0"},
        "zone": "eu-1a",
    }


def a_slice(*endpoints: Json, ports: Json = None) -> Json:
    return {
        "metadata": {"name": "vllm-x7", "labels": {"kubernetes.io/service-name": "vllm"}},
        "addressType": "IPv4",
        "endpoints": list(endpoints) or None,
        "ports": ports or [{"name": "http", "port": 8000, "protocol": "TCP"}],
    }


def a_pod(name: str, address: str, *, phase: str = "Running", ready: bool = True) -> Json:
    return {
        "metadata": {"name": name, "labels": {"app": "vllm", "id": "not-an-id"}},
        "spec": {
            "nodeName": "gpu-1",
            "containers": [
                {"name": "vllm", "ports": [{"name": "http", "containerPort": 8000}]},
                {"name": "sidecar", "ports": [{"containerPort": 9100}]},
            ],
        },
        "status": {
            "phase": phase,
            "podIP": address,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


@pytest.fixture
async def client(anyio_backend: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False) as opened:
        yield opened


def discovery(
    server: ApiServer,
    client: httpx2.AsyncClient,
    account: Path,
    *,
    service: str | None = "vllm",
    pods: str | None = None,
    port: int | str | None = None,
) -> Kubernetes:
    """Return a discovery that finds token and namespace where the kubelet puts them."""
    (account / "token").write_text("kubelet-1\n")
    (account / "namespace").write_text("llm")
    config = KubernetesConfig(api_server=server.url, service=service, pods=pods, port=port)
    return Kubernetes("kubernetes:chat", config, client, account=account, environ={})


async def test_endpoints_of_a_service_are_targets_over_all_pages(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    pages: list[Json] = [
        [a_slice(an_endpoint("vllm-0", "10.1.0.1"), an_endpoint("vllm-1", "10.1.0.2"))],
        [
            a_slice(an_endpoint("vllm-2", "10.1.0.3", ready=False)),
            a_slice(an_endpoint("vllm-3", "10.1.0.4", terminating=True)),
        ],
    ]
    async with an_api_server(ApiServer({SLICES: pages})) as server:
        found = await discovery(server, client, tmp_path).find()

    assert found == (
        Found("vllm-0", "http://10.1.0.1:8000"),
        Found("vllm-1", "http://10.1.0.2:8000"),
        Found("vllm-2", "http://10.1.0.3:8000", ready=False),
    )
    assert found[0].labels == {"pod": "vllm-0", "node": "gpu-1", "zone": "eu-1a"}
    assert server.asked[0][1]["labelSelector"] == ["kubernetes.io/service-name=vllm"]
    assert server.asked[1][1]["continue"] == ["1"]


async def test_pods_are_targets_by_their_labels(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    pods = [
        a_pod("a", "10.1.0.1"),
        a_pod("b", "", phase="Pending"),
        a_pod("c", "1", phase="Failed"),
    ]
    async with an_api_server(ApiServer({PODS: [pods]})) as server:
        asking = discovery(server, client, tmp_path, service=None, pods="app=vllm", port="http")
        found = await asking.find()

    assert found == (Found("a", "http://10.1.0.1:8000"),)
    assert found[0].labels["app"] == "vllm"


@pytest.mark.parametrize("port", [None, "http", 8000])
async def test_a_service_scaled_to_nothing_is_an_empty_list(
    client: httpx2.AsyncClient, tmp_path: Path, port: int | str | None
) -> None:
    empty: Json = {  # as the controller leaves it
        "metadata": {"name": "vllm-x7"},
        "addressType": "IPv4",
        "endpoints": None,
        "ports": None,
    }
    async with an_api_server(ApiServer({SLICES: [[empty]]})) as server:
        assert await discovery(server, client, tmp_path, port=port).find() == ()


async def test_a_token_that_the_kubelet_replaced_is_read_anew(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async with an_api_server(ApiServer({SLICES: [[]]})) as server:
        asking = discovery(server, client, tmp_path)
        await asking.find()
        server.token = "kubelet-2"
        with pytest.raises(DiscoveryError, match="the token is not accepted"):
            await asking.find()

        (tmp_path / "token").write_text("kubelet-2")

        assert await asking.find() == ()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, None, "verb 'list' on endpointslices"),
        (410, None, "changed while it was read"),
        (500, None, "answered 500"),
        (200, b"<html>", "cannot be read"),
        (200, b'{"items": 5}', "cannot be read"),
        (200, b"[" * 200_000, "cannot be read"),
    ],
    ids=["forbidden", "gone", "broken", "html", "shape", "deep"],
)
async def test_trouble_of_the_api_server_is_told(
    client: httpx2.AsyncClient, tmp_path: Path, status: int, body: bytes | None, words: str
) -> None:
    async with an_api_server(ApiServer(status=status, body=body)) as server:
        with pytest.raises(DiscoveryError) as caught:
            await discovery(server, client, tmp_path).find()

    assert words in str(caught.value)
    assert "kubelet-1" not in str(caught.value)


async def test_an_api_server_that_is_not_there_is_told(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async with an_api_server(ApiServer()) as server:
        pass

    with pytest.raises(DiscoveryError, match="cannot be reached"):
        await discovery(server, client, tmp_path).find()


async def test_a_choice_of_ports_is_not_guessed(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    ports: Json = [{"name": "http", "port": 8000}, {"name": "metrics", "port": 9090}]
    slices: Json = [a_slice(an_endpoint("vllm-0", "10.1.0.1"), ports=ports)]
    async with an_api_server(ApiServer({SLICES: [slices]})) as server:
        with pytest.raises(DiscoveryError, match=r"http \(8000\), metrics \(9090\); set 'port'"):
            await discovery(server, client, tmp_path).find()
        named = await discovery(server, client, tmp_path, port="metrics").find()
        numbered = await discovery(server, client, tmp_path, port=7000).find()

    assert [it.url for it in (*named, *numbered)] == [
        "http://10.1.0.1:9090",
        "http://10.1.0.1:7000",
    ]


async def test_outside_a_cluster_the_api_server_has_to_be_named(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    config = KubernetesConfig(namespace="llm", service="vllm")
    asking = Kubernetes("kubernetes:chat", config, client, account=tmp_path, environ={})

    with pytest.raises(DiscoveryError, match="set 'api_server'"):
        await asking.find()


async def test_a_certificate_authority_that_is_none_is_told(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    config = KubernetesConfig(
        namespace="llm",
        service="vllm",
        api_server="https://127.0.0.1:1",
        ca_file=tmp_path / "ca.crt",
    )
    asking = Kubernetes("kubernetes:chat", config, client, account=tmp_path, environ={})

    with pytest.raises(DiscoveryError, match=r"ca\.crt cannot be used"):
        await asking.find()


@pytest.mark.parametrize("given", [{}, {"service": "a", "pods": "b=c"}], ids=["none", "both"])
def test_either_a_service_or_pods(given: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="either 'service' or 'pods'"):
        KubernetesConfig.model_validate(given)
