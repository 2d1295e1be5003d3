"""Checks of servers that targets are read from, and of the files that let us in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic_core import PydanticCustomError

from collector.config.document import Document, Tree
from collector.config.problems import Place, nearest
from collector.sources.credentials import CredentialFiles, may_leak, read_headers
from collector.values import http_url

_FILES: Mapping[str, Callable[[Path], CredentialFiles]] = {
    "headers_file": lambda path: CredentialFiles(headers=path),
    "bearer_token_file": lambda path: CredentialFiles(bearer_token=path),
    "basic_auth_file": lambda path: CredentialFiles(basic_auth=path),
}


def credentials(document: Document, place: Place, holder: Mapping[str, Tree]) -> None:
    """Report files of credentials that cannot be used, and a url that would give them away."""
    given = [key for key in _FILES if isinstance(holder.get(key), str)]
    for key in given:
        files = _FILES[key](Path(str(holder[key])))
        try:
            read_headers(files)
        except ValueError as error:
            document.report((*place, key), f"usable credentials: {error}", "put the file right")
    if {"bearer_token_file", "basic_auth_file"} <= set(given):
        where = (*place, "basic_auth_file")
        document.report(where, "a token or a user and password, not both", "remove one")
    url = holder.get("url")
    if given and isinstance(url, str) and holder.get("insecure_http", False) is False:
        try:
            leaks = may_leak(http_url(url))
        except PydanticCustomError:
            return  # no URL at all: told elsewhere
        if leaks:
            document.report(
                (*place, "url"),
                "an https URL, because credentials are sent there",
                "use https, or set 'insecure_http: true' on a trusted network",
                got=document.got((*place, "url"), url),
            )


def certificates(document: Document, place: Place, server: Mapping[str, Tree]) -> None:
    """Report a file of certificates that is not there."""
    path = server.get("ca_file")
    if isinstance(path, str) and not Path(path).is_file():
        document.report(
            (*place, "ca_file"),
            "a file of certificates (PEM)",
            "create it, or name another",
            got=document.got((*place, "ca_file"), path),
        )


def known_server(
    document: Document, place: Place, target: Tree, servers: Mapping[str, Tree]
) -> None:
    """Report a server that a target, or the template of some, names and nobody configured."""
    read = target.get("from_prometheus") if isinstance(target, dict) else None
    name = read.get("server") if isinstance(read, dict) else None
    if isinstance(name, str) and name not in servers:
        remedy = nearest(name, servers) or "add it under 'prometheus' at the top"
        where = (*place, "from_prometheus", "server")
        document.report(where, "the name of a server in 'prometheus'", remedy, got=repr(name))


def same_series(document: Document, tier: str, targets: list[Tree]) -> None:
    """Report two targets of a tier that would be read from the same series."""
    seen: dict[str, int] = {}
    for index, item in enumerate(targets):
        read = item.get("from_prometheus") if isinstance(item, dict) else None
        if not isinstance(read, dict):
            continue
        place: Place = ("tiers", tier, "targets", index, "from_prometheus")
        name, match = read.get("server"), read.get("match")
        if not isinstance(match, dict):
            continue
        key = repr((name, sorted(match.items(), key=str)))
        if key in seen:
            first = document.line((*place[:3], seen[key], "from_prometheus", "match"))
            document.report(
                (*place, "match"),
                f"the target on line {first} matches the same series",
                "name labels that tell the two apart",
            )
        seen.setdefault(key, index)
