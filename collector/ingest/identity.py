"""Where a line belongs and when it happened."""

from __future__ import annotations

import functools
import hashlib
import re
from datetime import datetime

import msgspec

from collector.ingest.records import Defaults, Limits, LineError, Missing, Reason
from collector.ingest.shapes import Line, SizeLine
from detectors.records import OTHER_SEGMENT

_MINOR_VERSION = re.compile(r"(?:^|-)v?(\d+\.\d+)(?:\.|-|$)")
_RANDOM_TAIL = 8  # characters after the last - or _; Ollama numbers its answers up to 999
_YEAR_2000 = 946_684_800.0
_YEAR_2100 = 4_102_444_800.0
_NO_ID = frozenset({b"null", b'""'})


class Place(msgspec.Struct, frozen=True, gc=False):
    """What a generation is counted under."""

    tier: str
    target: str
    segment: str
    variant: str


def place_of(line: Line | SizeLine, variant: str, defaults: Defaults) -> tuple[Place, set[Missing]]:
    """Return where `line` belongs, and what of that could not be taken as it was said.

    Raises:
        LineError: If the tier is not configured, or neither line nor caller names one.
    """
    tier = line.tier or defaults.tier
    names = defaults.tiers.get(tier)
    if names is None:
        said = "its tier is not configured" if tier else "it names no tier and the query neither"
        known = ", ".join(sorted(defaults.tiers)) or "none"
        msg = f"{said}; configured: {known}"
        raise LineError(Reason.UNKNOWN_TIER, msg)
    missing: set[Missing] = set()
    target = line.target or defaults.target
    if target and target not in names.targets:
        target = ""
        missing.add(Missing.UNKNOWN_TARGET)
    segment = line.segment or defaults.segment
    if segment not in names.segments:
        segment = OTHER_SEGMENT
    return Place(tier, target, segment, variant), missing


@functools.lru_cache(maxsize=1024)  # a regular expression and a hash, for each line the same
def variant_of(*, engine: str, model: str, mode: str, listed: str) -> str:
    """Return the short hash of what gives logprobs their meaning.

    Args:
        engine: Version text of the engine (`vllm-0.32.0-dfdfb167`); its minor version counts.
        model: Name of the model, by the engine rather than the request.
        mode: The engine's logprobs mode, empty if not said.
        listed: The k that was asked for, `none` without logprobs.
    """
    found = _MINOR_VERSION.search(engine)
    parts = (found[1] if found else "", model, mode, listed)
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=4).hexdigest()


def id_of(line: Line | SizeLine, response: msgspec.Raw | msgspec.UnsetType) -> int:
    """Return a hash of what makes a line itself: its id, else its response's; 0 if it has none.

    Args:
        line: The line.
        response: The id in the response, as JSON. One that is too short to be random does not
            count.
    """
    if line.id is not msgspec.UNSET and bytes(line.id) not in _NO_ID:
        return _hash(bytes(line.id))
    if response is msgspec.UNSET:
        return 0
    said = bytes(response)
    return _hash(said) if is_unique(said) else 0


def is_unique(said: bytes) -> bool:
    """Tell whether an id (a text as JSON) is too long to come twice by chance or counting."""
    return len(said) - max(said.rfind(b"-"), said.rfind(b"_"), 0) - len(b'-"') >= _RANDOM_TAIL


def _hash(data: bytes) -> int:
    """Return eight bytes of hash; the same in every process, unlike Python's own."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1


def sample_ratio(line: Line | SizeLine, missing: set[Missing]) -> float:
    """Return the share of the sender's requests that this one was drawn with, 1 if not said."""
    said = line.sample_ratio
    if said is None:
        return 1.0
    if not 0 < said <= 1:
        missing.add(Missing.BAD_SAMPLE_RATIO)
        return 1.0
    return said


def time_of(
    at: str | float | None, created: float | None, defaults: Defaults, limits: Limits
) -> tuple[float, bool]:
    """Return the unix time of a generation, and whether what was said of it could be used.

    The line's `at` comes first, then the response's own time, then arrival. Nonsense, and for live
    lines a time too far from arrival (clocks jump), give arrival.
    """
    arrival = defaults.arrival.timestamp()
    if at is None and created is None:
        return arrival, True
    said = _seconds(at) if at is not None else created
    if said is None or not _YEAR_2000 <= said <= _YEAR_2100:
        return arrival, False
    early = arrival - limits.max_age_seconds
    if defaults.live and not early <= said <= arrival + limits.max_future_seconds:
        return arrival, False
    return said, True


def _seconds(at: str | float) -> float | None:
    """Return unix seconds; None for text that is no RFC 3339 time with an offset."""
    if not isinstance(at, str):
        return at
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()
