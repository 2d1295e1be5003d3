"""How routes find the running parts, and who may change something through them."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, HTTPException, Request

from collector.parts import Parts


def parts_of(request: Request) -> Parts:
    """Return the running parts behind this request."""
    return cast("Parts", request.app.state.parts)


PartsDep = Annotated[Parts, Depends(parts_of)]


def may_change(request: Request, parts: PartsDep) -> None:
    """Refuse a mutating call that the access rule does not allow."""
    refusal = parts.access.refusal(request)
    if refusal is not None:
        raise refusal


MayChange = Depends(may_change)


def known_tier(tier: str, parts: PartsDep) -> str:
    """Return the tier of the path, or answer 404 with the tiers there are."""
    if tier not in parts.tiers:
        known = ", ".join(sorted(parts.tiers))
        raise HTTPException(404, detail=f"no tier {tier!r}; known: {known}")
    return tier


KnownTier = Annotated[str, Depends(known_tier)]
