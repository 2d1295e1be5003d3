"""Packages that only reports need: looked for when they are used, with the way to get them."""

from __future__ import annotations

from importlib.util import find_spec

from collector.reports.records import TableError

INSTALL = "pip install 'fusewire[reports]'"


def need(package: str, purpose: str) -> None:
    """Check that a package is there.

    Raises:
        TableError: If it is not; the message says how to install it.
    """
    if find_spec(package) is None:
        msg = f"{purpose} needs {package}, which is not installed; get it with: {INSTALL}"
        raise TableError(msg)
