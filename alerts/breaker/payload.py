"""What gateways are told: the whole present state of one breaker, never a change.

A lost message is repaired by the next renewal and a late one refused by (epoch, seq). The bytes
made here are the bytes that are signed and sent. docs/gateways/webhook.md shows the shape.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.records import Breaker, Cause, Delivery, Override, Transition

SCHEMA = 1
LARGEST_BYTES = 16 * 1024
_TEXT_MOST = 400
_SIGNALS_MOST = 8


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint as the controller knows it: its name, and the tiers it wants (none: all)."""

    name: str
    tiers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What a payload says besides the breaker: who sends it and where the target is."""

    controller: str
    parameters: BreakerParameters
    address: str
    retry_after_seconds: int


def deliveries(
    routes: Sequence[Route],
    breaker: Breaker,
    transition: Transition | None,
    facts: Facts,
    now: datetime,
) -> tuple[Delivery, ...]:
    """Return one outbox row for each endpoint that wants the tier of `breaker`."""
    wanted = [route for route in routes if not route.tiers or breaker.key.tier in route.tiers]
    if not wanted:
        return ()
    bytes_sent = body(breaker, transition, facts, now)
    # a gateway may hold what was sent at the end of its lease for one lease more
    both = 2 * timedelta(seconds=facts.parameters.lease_seconds)
    return tuple(
        Delivery(
            id=_delivery_id(facts.controller, route.name, breaker, bytes_sent),
            endpoint=route.name,
            key=breaker.key,
            epoch=breaker.epoch,
            seq=breaker.seq,
            body=bytes_sent,
            created_at=now,
            due_at=now,
            expires_at=breaker.lease_expires_at or now + both,
        )
        for route in wanted
    )


def body(breaker: Breaker, transition: Transition | None, facts: Facts, now: datetime) -> bytes:
    """Return the bytes of one message, at most 16 KiB of JSON without NaN.

    Raises:
        ValueError: If the names of tier and target alone make it larger.
    """
    before = transition.before if transition else breaker
    withheld = breaker.effective_ratio < 1
    message = {
        "type": event_type(breaker, transition),
        "timestamp": _instant(now),
        "data": {
            "schema": SCHEMA,
            "controller": facts.controller,
            "epoch": breaker.epoch,
            "seq": breaker.seq,
            "tier": breaker.key.tier,
            "target": _target(breaker, facts.address),
            "state": breaker.shown_state,
            "previous_state": before.shown_state,
            "admit_ratio": breaker.effective_ratio,
            "retry_after_seconds": facts.retry_after_seconds if withheld else 0,
            "open_until": _instant(breaker.open_until),
            "lease": _lease(breaker, facts.parameters),
            "cause": _cause(breaker.cause),
            "override": _override(breaker.override),
            "dry_run": False,
        },
    }
    encoded = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    if len(encoded) > LARGEST_BYTES:
        msg = (
            f"breaker {str(breaker.key)[:80]!r}: a message of {len(encoded)} bytes, at most "
            f"{LARGEST_BYTES} may be sent; shorten the names of tier and target"
        )
        raise ValueError(msg)
    return encoded


def event_type(breaker: Breaker, transition: Transition | None) -> str:
    """Return the message's type, such as `fusewire.breaker.open` or `fusewire.tier.shed`."""
    kind = transition.kind if transition else "renewed"
    subject = "breaker" if breaker.key.target or kind != "shed" else "tier"
    return f"fusewire.{subject}.{kind}"


def _target(breaker: Breaker, address: str) -> Mapping[str, str] | None:
    return {"id": breaker.key.target, "address": address} if breaker.key.target else None


def _lease(breaker: Breaker, parameters: BreakerParameters) -> Mapping[str, object] | None:
    if breaker.lease_expires_at is None:
        return None
    return {
        "seconds": parameters.lease_seconds,
        "expires_at": _instant(breaker.lease_expires_at),
        "on_expiry": "close",
    }


def _cause(cause: Cause | None) -> Mapping[str, object] | None:
    if cause is None:
        return None
    signals = [
        {"name": name, **{key: value for key, value in numbers.items() if math.isfinite(value)}}
        for name, numbers in list(cause.signals.items())[:_SIGNALS_MOST]
    ]
    return {
        "code": cause.code,
        "class": cause.kind,
        "reason": cause.reason[:_TEXT_MOST],
        "signals": signals,
    }


def _override(override: Override | None) -> Mapping[str, object] | None:
    if override is None:
        return None
    return {
        "forced": override.forced,
        "actor": override.actor[:_TEXT_MOST],
        "reason": override.reason[:_TEXT_MOST],
        "expires_at": _instant(override.expires_at),
    }


def _instant(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _delivery_id(controller: str, endpoint: str, breaker: Breaker, bytes_sent: bytes) -> str:
    """Return the `webhook-id`: the same for the same message to the same endpoint."""
    digest = blake2b(digest_size=12)
    for part in (controller, endpoint, str(breaker.key), f"{breaker.epoch}.{breaker.seq}"):
        digest.update(part.encode() + b"\0")
    digest.update(bytes_sent)
    return f"msg_{digest.hexdigest()}"
