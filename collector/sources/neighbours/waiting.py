"""What a broker's queue looks like, whatever the broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Depth:
    """Messages that wait, and the most that may; None is what the broker does not say.

    `size` counts what no consumer has finished: not delivered, or delivered and not acknowledged.
    `remarks` are (code, sentence) of findings.
    """

    size: float | None = None
    bound: float | None = None
    remarks: tuple[tuple[str, str], ...] = ()


def missing(what: str, name: str) -> Depth:
    """Return the depth of something that the broker does not know."""
    text = f"the broker knows no {what} {name!r}; check its name, or wait until it is made"
    return Depth(remarks=(("queue_not_found", text),))
