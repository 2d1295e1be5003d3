"""Checks between keys: names that must exist, things that must not be named twice, files.

They work on the values as read, beside the types, so that a wrong type elsewhere hides nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic_core import PydanticCustomError

from alerts.breaker.parameters import BreakerParameters
from collector.config import outside, servers
from collector.config.document import Document, Tree
from collector.config.problems import Place, nearest
from collector.sources.engine.engines import engine_names
from collector.token_file import SHORTEST_TOKEN, token_lines
from collector.values import duration_seconds, host_port, http_url
from detectors.signals import NEIGHBOUR_SIGNALS, SIGNALS

_MAX_SECRET_BYTES = 65_536


def check(document: Document) -> None:
    """Add a problem for every contradiction between keys of the document."""
    for rule in _RULES:
        rule(document)


def mapping(value: Tree) -> dict[str, Tree]:
    """Return the value if it is a mapping, else an empty one: its type is judged elsewhere."""
    return value if isinstance(value, dict) else {}


def items(value: Tree) -> list[Tree]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def read_secret(document: Document, place: Place, path: Path) -> str | None:
    """Return the content of a secret file without the line end, None with a problem reported.

    Files that everyone may read are accepted (Kubernetes mounts secrets so); files that everyone
    may write are not.
    """
    got = document.got(place, "")
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            document.report(place, "a regular file", "name a file", got=got)
            return None
        with path.open("rb") as file:
            content = file.read(_MAX_SECRET_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "unknown reason"
        document.report(
            place, f"a readable file ({reason})", "create it, or let this user read it", got=got
        )
        return None
    if mode & stat.S_IWOTH:
        document.report(
            place, "a file that not everyone can write", f"run: chmod o-w {path}", got=got
        )
        return None
    text = content.decode("utf-8", "replace").strip()
    if not text or len(content) > _MAX_SECRET_BYTES:
        document.report(place, "a file with a short text in it", "write the secret to it", got=got)
        return None
    return text


def _tiers(document: Document) -> Iterator[tuple[str, dict[str, Tree]]]:
    for name, tier in mapping(mapping(document.data).get("tiers")).items():
        yield name, mapping(tier)


def _target_id(target: dict[str, Tree]) -> str | None:
    identity, url = target.get("id"), target.get("url")
    if isinstance(identity, str):
        return identity
    if identity is None and isinstance(url, str):
        try:
            return host_port(http_url(url))
        except PydanticCustomError:
            return None
    return None


def _some_targets(document: Document) -> None:
    for name, tier in mapping(mapping(document.data).get("tiers")).items():
        if not isinstance(tier, dict):
            continue  # said already
        if tier.get("targets", []) == [] and tier.get("discovery", []) == []:
            place: Place = ("tiers", name, "targets")
            document.report(place, "at least one target, or 'discovery'", "list the replicas' URLs")


def _unique_targets(document: Document) -> None:
    for name, tier in _tiers(document):
        ids: dict[str, int] = {}
        urls: dict[str, int] = {}
        for index, item in enumerate(items(tier.get("targets"))):
            target = mapping(item)
            place: Place = ("tiers", name, "targets", index)
            identity, url = _target_id(target), target.get("url")
            if isinstance(url, str) and url.rstrip("/") in urls:
                first = document.line(("tiers", name, "targets", urls[url.rstrip("/")]))
                document.report(
                    (*place, "url"),
                    f"the target on line {first} has the same URL",
                    "remove one",
                )
            elif identity in ids:
                first = document.line(("tiers", name, "targets", ids[identity]))
                document.report(
                    (*place, "id"),
                    f"the target on line {first} has the same id {identity!r}",
                    "rename one",
                )
            if isinstance(url, str):
                urls.setdefault(url.rstrip("/"), index)
            if identity is not None:
                ids.setdefault(identity, index)


def _known_tier(document: Document, place: Place, name: Tree) -> None:
    names = {known for known, _ in _tiers(document)}
    if isinstance(name, str) and name not in names:
        document.report(place, "the name of a tier", nearest(name, names), got=repr(name))


def _shadows(document: Document) -> None:
    tiers = dict(_tiers(document))
    for name, tier in tiers.items():
        role, of = tier.get("role", "production"), tier.get("shadow_of")
        place: Place = ("tiers", name, "shadow_of")
        if role == "shadow" and of is None:
            document.report(place, "a shadow tier needs the tier it is compared with", "add it")
        elif of is not None and role == "production":
            document.report(place, "only a shadow tier has shadow_of", "add 'role: shadow'")
        elif of == name:
            document.report(
                place, "another tier than itself", "name the production tier", got=repr(of)
            )
        elif isinstance(of, str) and mapping(tiers.get(of)).get("role") == "shadow":
            document.report(
                place, "a production tier; this one is a shadow too", "name another", got=repr(of)
            )
        else:
            _known_tier(document, place, of)


def _detector_signals(document: Document) -> None:
    for name, tier in _tiers(document):
        for index, item in enumerate(items(tier.get("detectors"))):
            place: Place = ("tiers", name, "detectors", index)
            detector = mapping(item)
            named: list[tuple[Place, Tree]] = [
                ((*place, "signal"), detector.get("signal")),
                ((*place, "divisor"), detector.get("divisor")),
                ((*place, "when", "signal"), mapping(detector.get("when")).get("signal")),
            ]
            for position, signal in enumerate(items(detector.get("signals"))):
                named.append(((*place, "signals", position), signal))
            for where, signal in named:
                if isinstance(signal, str) and signal not in SIGNALS:
                    remedy = nearest(signal, {*SIGNALS, *engine_names()})
                    if not remedy.startswith("did"):
                        remedy = "docs/metrics.md lists them, after 'fusewire_'"
                    document.report(where, "a known signal", remedy, got=repr(signal))


def _signals_of_neighbours(document: Document) -> None:
    """A limit on what only neighbours tell would never be judged in a tier without any."""
    for name, tier in _tiers(document):
        if tier.get("neighbours"):
            continue
        for index, item in enumerate(items(tier.get("detectors"))):
            signal = mapping(item).get("signal")
            if isinstance(signal, str) and signal in NEIGHBOUR_SIGNALS:
                place: Place = ("tiers", name, "detectors", index, "signal")
                document.report(
                    place,
                    "a signal of targets; only neighbours tell this one and the tier has none",
                    "add the client or store under 'neighbours' (docs/sources)",
                    got=repr(signal),
                )


def _neighbour_names(document: Document) -> None:
    """A neighbour and a target of one name could not be told apart on the metrics page."""
    for name, tier in _tiers(document):
        targets = {_target_id(mapping(it)) for it in items(tier.get("targets"))}
        for neighbour in mapping(tier.get("neighbours")):
            if neighbour in targets:
                place: Place = ("tiers", name, "neighbours", neighbour)
                document.report(place, "a name that no target of the tier has", "rename it")


def _webhooks(document: Document) -> None:
    for name, item in mapping(mapping(document.data).get("webhooks")).items():
        webhook = mapping(item)
        place: Place = ("webhooks", name)
        url = webhook.get("url")
        plain = isinstance(url, str) and url.startswith("http://")
        if plain and webhook.get("insecure_http", False) is False:
            document.report(
                (*place, "url"),
                "an https URL",
                "use https, or set 'insecure_http: true' on a trusted network",
                got=document.got((*place, "url"), url),
            )
        for index, tier in enumerate(items(webhook.get("tiers"))):
            _known_tier(document, (*place, "tiers", index), tier)
        if isinstance(item, dict) and not webhook.keys() & {"secret", "secret_file"}:
            document.report(
                (*place, "secret"), "there is no secret to sign with", "add secret_file or secret"
            )


def _followed_files(document: Document) -> None:
    tiers = dict(_tiers(document))
    ingest = mapping(mapping(document.data).get("ingest"))
    for index, item in enumerate(items(ingest.get("files"))):
        place: Place = ("ingest", "files", index)
        followed = mapping(item)
        _known_tier(document, (*place, "tier"), followed.get("tier"))
        tier = mapping(tiers.get(str(followed.get("tier"))))
        known: dict[str, set[str | None]] = {
            "target": {_target_id(mapping(target)) for target in items(tier.get("targets"))},
            "segment": {name for name in items(tier.get("segments")) if isinstance(name, str)},
        }
        for key, names in known.items():
            value = followed.get(key)
            if tier and isinstance(value, str) and value not in names:
                document.report(
                    (*place, key),
                    f"a {key} of tier {followed.get('tier')!r}",
                    nearest(value, {name for name in names if name}),
                    got=repr(value),
                )


def _leases(document: Document) -> None:
    """A target counts as down when no scrape of it completed for a lease: two must fit in.

    A slow scrape is not a dead target, so a scrape may outlast the interval; not the lease.
    """
    for key, default, words in (
        ("scrape_interval", "5s", "two scrapes ({0:g}s apart)"),
        ("scrape_timeout", "250ms", "two scrapes that take {0:g}s each"),
    ):
        value = mapping(document.data).get(key, default)
        try:
            seconds = duration_seconds(value) if isinstance(value, str) else 0.0
        except PydanticCustomError:
            continue
        _lease_of_tiers(document, key, seconds, words.format(seconds))


def _lease_of_tiers(document: Document, key: str, seconds: float, words: str) -> None:
    for name, tier in _tiers(document):
        breaker = mapping(tier.get("breaker"))
        lease = breaker.get("lease_seconds", BreakerParameters().lease_seconds)
        if isinstance(lease, bool) or not isinstance(lease, int | float) or seconds <= lease / 2:
            continue
        place: Place = ("tiers", name, "breaker", "lease_seconds")
        if key in mapping(document.data):
            place = (key,)
        document.report(
            place,
            f"{words} within the lease of tier {name!r} ({lease:g}s), "
            "or its targets count as down between them",
            "scrape more often, or raise breaker.lease_seconds and renew_seconds",
            got=document.got(place, ""),
        )
        return


def _tokens(document: Document) -> None:
    value = mapping(document.data).get("token_file")
    if not isinstance(value, str):
        return
    text = read_secret(document, ("token_file",), Path(value))
    if text is None:
        return
    tokens = token_lines(text)
    if not tokens or any(len(token) < SHORTEST_TOKEN for token in tokens):
        document.report(
            ("token_file",),
            f"tokens of at least {SHORTEST_TOKEN} characters, one a line",
            "make one: openssl rand -hex 32",
        )


def _snapshot_folder(document: Document) -> None:
    value = mapping(document.data).get("snapshot")
    if isinstance(value, str) and not os.access(Path(value).parent, os.W_OK):
        document.report(
            ("snapshot",),
            "a file in a folder that exists and can be written",
            "create the folder, or name another",
            got=document.got(("snapshot",), value),
        )


def _outside(document: Document) -> None:
    for name, tier in _tiers(document):
        outside.segments(document, name, tier)
    for name, webhook in mapping(mapping(document.data).get("webhooks")).items():
        outside.webhook_address(document, name, mapping(webhook))
    outside.store_folder(document, mapping(document.data).get("store"))


def _servers(document: Document) -> None:
    named = mapping(mapping(document.data).get("prometheus"))
    for name, item in named.items():
        servers.credentials(document, ("prometheus", name), mapping(item))
        servers.certificates(document, ("prometheus", name), mapping(item))
    for name, tier in _tiers(document):
        targets = items(tier.get("targets"))
        servers.same_series(document, name, targets)
        servers.known_server(document, ("tiers", name, "template"), tier.get("template"), named)
        for index, target in enumerate(targets):
            place: Place = ("tiers", name, "targets", index)
            servers.known_server(document, place, target, named)
            servers.credentials(document, place, mapping(target))


_RULES: tuple[Callable[[Document], None], ...] = (
    _some_targets,
    _unique_targets,
    _shadows,
    _detector_signals,
    _signals_of_neighbours,
    _neighbour_names,
    _webhooks,
    _followed_files,
    _leases,
    _tokens,
    _snapshot_folder,
    _outside,
    _servers,
)
