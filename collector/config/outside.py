"""Checks against what lies outside the file: folders, addresses, and names with a meaning."""

from __future__ import annotations

import os
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from alerts.delivery.egress import Network, refused
from collector.config.document import Document, Tree
from collector.config.problems import Place
from detectors.records import OTHER_SEGMENT


def segments(document: Document, name: str, tier: dict[str, Tree]) -> None:
    """Refuse segments that are named twice, or that mean "everything else" already."""
    seen: set[str] = set()
    listed = tier.get("segments")
    for index, segment in enumerate(listed if isinstance(listed, list) else []):
        place: Place = ("tiers", name, "segments", index)
        if segment == OTHER_SEGMENT:
            expected = f"{OTHER_SEGMENT!r} holds everything that is not listed"
            document.report(place, expected, "remove it")
        elif isinstance(segment, str) and segment in seen:
            document.report(place, f"the segment {segment!r} stands here twice", "remove one")
        elif isinstance(segment, str):
            seen.add(segment)


def store_folder(document: Document, store: Tree) -> None:
    """Refuse a SQLite store in a folder that is not there."""
    if not isinstance(store, str) or not store.startswith("sqlite:///"):
        return
    path = store.removeprefix("sqlite:///").partition("?")[0]
    if path and path != ":memory:" and not os.access(Path(path).parent, os.W_OK):
        document.report(
            ("store",),
            "a file in a folder that exists and can be written",
            "create the folder, or name another",
            got=document.got(("store",), store),
        )


def webhook_address(document: Document, name: str, webhook: dict[str, Tree]) -> None:
    """Refuse an address that no webhook of these settings would ever be sent to."""
    url = webhook.get("url")
    try:
        address = ip_address((urlsplit(url).hostname or "") if isinstance(url, str) else "")
    except ValueError:
        return  # a name: judged by its addresses when it is sent to
    allowed: list[Network] = []
    listed = webhook.get("allow")
    for entry in listed if isinstance(listed, list) else []:
        try:
            allowed.append(ip_network(entry if isinstance(entry, str) else ""))
        except ValueError:
            return  # told elsewhere
    problem = refused(address, allowed)
    if problem:
        place: Place = ("webhooks", name, "url")
        document.report(
            place, "an address that webhooks may go to", problem, got=document.got(place, url)
        )
