"""The file of bearer tokens: one a line; blank lines and lines that begin with `#` are skipped."""

from __future__ import annotations

SHORTEST_TOKEN = 16  # characters


def token_lines(text: str) -> tuple[str, ...]:
    """Return the tokens of a token file, in order."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))
