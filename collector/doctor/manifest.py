"""Kubernetes manifests, as far as they decide how an inference tier dies."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import yaml

Tree: TypeAlias = "str | int | float | bool | list[Tree] | dict[str, Tree] | None"

MOST_BYTES: Final = 8_388_608
MOST_DOCUMENTS: Final = 1_000
_UNITS: Final[Mapping[str, float]] = MappingProxyType(
    {
        **{unit: 1024.0**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)},
        **{unit: 1000.0**power for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)},
        "m": 0.001,
        "": 1.0,
    }
)
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]+)?)([A-Za-z]{0,2})")
_WORKLOADS: Final = frozenset(
    {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "LeaderWorkerSet", "Pod"}
)
_ENGINES: Final = (  # words of an image or command, in this order
    ("text-generation", "tgi"),
    ("tgi", "tgi"),
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("trtllm", "trtllm"),
    ("tritonserver", "triton"),
    ("llama-server", "llamacpp"),
    ("llama.cpp", "llamacpp"),
)


class ManifestError(Exception):
    """A manifest that cannot be read; the text says where and what to do."""


@dataclass(frozen=True, slots=True)
class Probe:
    """How the kubelet asks a container; `path` is that of an HTTP probe."""

    kind: str  # http, exec, tcp, grpc
    path: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """One container; `engine` is empty where no inference engine was recognised.

    `options` are the flags of its command without dashes, `-` for `_` (`max-model-len`), with
    empty text for switches. `gpus` and `memory_limit_bytes` are None where no limit is set.
    """

    place: str
    name: str
    engine: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_limit_bytes: float | None = None
    gpus: float | None = None
    probes: Mapping[str, Probe] = field(default_factory=dict)

    def option(self, *names: str) -> str | None:
        """Return the value of the first flag or environment variable that is given."""
        for name in names:
            if name in self.options:
                return self.options[name]
            variable = name.upper().replace("-", "_")
            if variable in self.environment:
                return self.environment[variable]
        return None


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods of one template."""

    kind: str
    name: str
    namespace: str
    replicas: float
    containers: tuple[Container, ...]

    @property
    def place(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """A HorizontalPodAutoscaler."""

    place: str
    target: tuple[str, str]  # kind, name
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota; `gpus` is None where it does not speak of them."""

    place: str
    namespace: str
    gpus: float | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the files hold."""

    workloads: tuple[Workload, ...] = ()
    autoscalers: tuple[Autoscaler, ...] = ()
    quotas: tuple[Quota, ...] = ()


def quantity(text: Tree) -> float | None:
    """Return a Kubernetes quantity as a plain number, None if it is none.

    >>> quantity("16Gi"), quantity("500m"), quantity(2), quantity("lots")
    (17179869184.0, 0.5, 2.0, None)
    """
    match = _QUANTITY.fullmatch(str(text).strip()) if not isinstance(text, bool) else None
    if match is None or match[2] not in _UNITS:
        return None
    return float(match[1]) * _UNITS[match[2]]


def read_manifests(paths: Sequence[Path]) -> Manifest:
    """Read files of one or many documents each; a `List` counts as its items.

    Raises:
        ManifestError: If a file cannot be read or is not YAML.
    """
    workloads: list[Workload] = []
    autoscalers: list[Autoscaler] = []
    quotas: list[Quota] = []
    for path in paths:
        for item in _items(_documents(path)):
            kind = str(item.get("kind", ""))
            if kind in _WORKLOADS:
                workloads.append(_workload(kind, item))
            elif kind == "HorizontalPodAutoscaler":
                autoscalers.append(_autoscaler(item))
            elif kind == "ResourceQuota":
                quotas.append(_quota(item))
    return Manifest(tuple(workloads), tuple(autoscalers), tuple(quotas))


def _documents(path: Path) -> list[Tree]:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        msg = f"manifest {path}: cannot be read: {error.strerror}; name a YAML file"
        raise ManifestError(msg) from error
    if len(content) > MOST_BYTES:
        msg = f"manifest {path}: over {MOST_BYTES:,} bytes; name a smaller file"
        raise ManifestError(msg)
    try:
        documents: list[Tree] = []
        for document in yaml.safe_load_all(content):
            documents.append(document)
            if len(documents) > MOST_DOCUMENTS:
                msg = f"manifest {path}: over {MOST_DOCUMENTS} documents; name a smaller file"
                raise ManifestError(msg)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" on line {mark.line + 1}" if mark else ""
        msg = f"manifest {path}: not YAML{where}; templates have to be rendered first"
        raise ManifestError(msg) from error
    return documents


def _items(documents: Sequence[Tree]) -> Iterator[dict[str, Tree]]:
    for document in documents:
        item = _mapping(document)
        if str(item.get("kind", "")).endswith("List"):
            yield from map(_mapping, _list(item.get("items")))
        elif item:
            yield item


def _mapping(tree: Tree) -> dict[str, Tree]:
    return tree if isinstance(tree, dict) else {}


def _list(tree: Tree) -> list[Tree]:
    return tree if isinstance(tree, list) else []


def _at(tree: Tree, *path: str) -> Tree:
    for key in path:
        tree = _mapping(tree).get(key)
    return tree


def _named(item: Mapping[str, Tree]) -> tuple[str, str]:
    metadata = _mapping(item.get("metadata"))
    return str(metadata.get("name", "?")), str(metadata.get("namespace") or "default")


def _workload(kind: str, item: dict[str, Tree]) -> Workload:
    name, namespace = _named(item)
    spec = _mapping(item.get("spec"))
    if kind == "LeaderWorkerSet":
        pod = _at(spec, "leaderWorkerTemplate", "workerTemplate", "spec")
    else:
        pod = spec if kind == "Pod" else _at(spec, "template", "spec")
    containers = map(_mapping, _list(_at(pod, "containers")))
    replicas = quantity(spec.get("replicas"))
    return Workload(
        kind,
        name,
        namespace,
        1.0 if replicas is None else replicas,
        tuple(_container(f"{kind} {name}", it) for it in containers),
    )


def _container(place: str, item: dict[str, Tree]) -> Container:
    name = str(item.get("name", "?"))
    words = [str(it) for key in ("command", "args") for it in _list(item.get(key))]
    limits = _mapping(_at(item, "resources", "limits"))
    environment = {
        str(it.get("name")): str(it.get("value", ""))
        for it in map(_mapping, _list(item.get("env")))
    }
    probes = {
        kind: _probe(_mapping(item[f"{kind}Probe"]))
        for kind in ("startup", "readiness", "liveness")
        if f"{kind}Probe" in item
    }
    return Container(
        place=f"{place}, container {name}",
        name=name,
        engine=_engine(" ".join([str(item.get("image", "")), *words])),
        options=_options(words),
        environment=environment,
        memory_limit_bytes=quantity(limits.get("memory")),
        gpus=_gpus(limits),
        probes=probes,
    )


def _gpus(limits: Mapping[str, Tree]) -> float | None:
    found = [quantity(value) for key, value in limits.items() if key.endswith(("/gpu", ".gpu"))]
    found += [quantity(value) for key, value in limits.items() if "/mig-" in key]
    known = [value for value in found if value is not None]
    return sum(known) if known else None


def _engine(words: str) -> str:
    lowered = words.lower()
    return next((engine for word, engine in _ENGINES if word in lowered), "")


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return flags and values: `--a b`, `--a=b`, switches; also from one line of a shell."""
    flat: list[str] = []
    for word in words:
        try:
            flat += shlex.split(word) if any(it in word for it in " \n") else [word]
        except ValueError:  # quotes that a shell would not take either
            flat += word.split()
    options: dict[str, str] = {}
    for word, after in pairwise([*flat, ""]):
        if not word.startswith("--"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        given = value if equals else ("" if after.startswith("--") else after)
        options[name.replace("_", "-")] = given
    return options


def _probe(item: Mapping[str, Tree]) -> Probe:
    for key, kind in (("httpGet", "http"), ("exec", "exec"), ("grpc", "grpc")):
        if key in item:
            return Probe(kind, str(_mapping(item[key]).get("path", "")))
    return Probe("tcp")


def _autoscaler(item: dict[str, Tree]) -> Autoscaler:
    name, _ = _named(item)
    spec = _mapping(item.get("spec"))
    least, most = quantity(spec.get("minReplicas")), quantity(spec.get("maxReplicas"))
    target = _mapping(spec.get("scaleTargetRef"))
    return Autoscaler(
        f"HorizontalPodAutoscaler {name}",
        (str(target.get("kind", "")), str(target.get("name", ""))),
        1.0 if least is None else least,
        1.0 if most is None else most,
    )


def _quota(item: dict[str, Tree]) -> Quota:
    name, namespace = _named(item)
    hard = _mapping(_at(item, "spec", "hard"))
    gpus = [quantity(value) for key, value in hard.items() if key.endswith("/gpu")]
    known = [value for value in gpus if value is not None]
    return Quota(f"ResourceQuota {name}", namespace, min(known) if known else None)
