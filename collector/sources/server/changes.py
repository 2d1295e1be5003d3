"""What a server said of itself, and what of it has changed: pure, no I/O, no clock.

A change is noticed only where both sides are known: a server that does not tell something any more
has not changed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from collector.sources.engine.versions import release, span_ends
from collector.sources.names import digest, short_name, shortened
from detectors.records import Identity
from detectors.remarks import Noticed

MOST_ADAPTERS: Final = 1024
_NO_CHANGE: Final = frozenset({"loras"})  # told in words of their own


@dataclass(frozen=True, slots=True)
class Facts:
    """What one server said of itself; empty or None where it did not say.

    `revision` is what the model was loaded from (a path or a repository, by name and hash) or its
    commit; `generation_config` and `chat_template` are hashes of what the server uses where a
    request says nothing; `loras` are the adapters that may be asked for.
    """

    engine: str = ""
    version: str = ""
    model: str = ""
    revision: str = ""
    quantization: str = ""
    dtype: str = ""
    kv_cache_dtype: str = ""
    generation_config: str = ""
    chat_template: str = ""
    logprobs_mode: str = ""
    loras: tuple[str, ...] | None = None
    context_tokens: float | None = None
    request_slots: float | None = None
    kv_cache_capacity_tokens: float | None = None
    batch_token_budget: float | None = None

    @property
    def identity(self) -> Identity:
        return Identity(self.engine, self.version, self.model)

    @property
    def values(self) -> dict[str, float]:
        """The canonical signals among the facts."""
        told = {
            "context_tokens": self.context_tokens,
            "request_slots": self.request_slots,
            "kv_cache_capacity_tokens": self.kv_cache_capacity_tokens,
            "batch_token_budget": self.batch_token_budget,
        }
        return {signal: value for signal, value in told.items() if value is not None}

    def filled_from(self, other: Facts) -> Facts:
        """Return these facts, and where they say nothing those of `other`."""
        missing = {
            it.name: getattr(other, it.name)
            for it in fields(self)
            if getattr(self, it.name) in ("", None)
        }
        return replace(self, **missing)


def changes(before: Facts, after: Facts) -> tuple[Noticed, ...]:
    """Return what differs between two sights of one server, each thing once.

    What is known for the first time is noticed as such.

    >>> changes(Facts(version="0.31.0", dtype="bfloat16"), Facts(version="0.32.0"))
    (Noticed(what='version', before='0.31.0', after='0.32.0', first=False),)
    """
    found = []
    for it in fields(after):
        old, new = _words(getattr(before, it.name)), _words(getattr(after, it.name))
        if it.name in _NO_CHANGE or not new or new == old:
            continue
        found.append(Noticed(it.name, old, new, first=not old))
    if after.loras is not None and after.loras != before.loras:
        old = "" if before.loras is None else _adapters(before.loras)
        found.append(Noticed("loras", old, _adapters(after.loras), first=not old))
    return tuple(found)


def another_server(before: Identity, now: Identity) -> bool:
    """Say whether two identities cannot be of one server; what one does not say excludes nothing.

    A page tells a span of versions that becomes narrower as families are first used.

    >>> page, asked = Identity("vllm", ">=0.31.0", "tiny"), Identity("vllm", "0.32.0", "tiny")
    >>> another_server(page, asked), another_server(Identity("vllm", "0.33.0", "tiny"), asked)
    (False, True)
    """
    names = (
        (before.engine, now.engine),
        (short_name(before.model), short_name(now.model)),
    )
    if any(one and other and one != other for one, other in names):
        return True
    if not before.version or not now.version or before.version == now.version:
        return False
    (since, until), (from_, to) = span_ends(before.version), span_ends(now.version)
    return _before(until, from_) or _before(to, since)


def is_exact(version: str) -> bool:
    """Say whether a version is one and no span."""
    since, until = span_ends(version)
    return since == until != ""


def digest_of_told(told: Mapping[str, object]) -> str:
    """Return a hash of what is told of a mapping, empty if that is nothing."""
    known = {name: value for name, value in told.items() if value not in (None, "", {}, [])}
    return digest(known) if known else ""


def adapters(names: Iterable[str]) -> tuple[str, ...]:
    """Return adapter names in order, shortened and bounded in number."""
    return tuple(sorted({short_name(name) for name in names})[:MOST_ADAPTERS])


def _before(one: str, other: str) -> bool:
    return bool(one and other) and release(one) < release(other)


def _adapters(names: tuple[str, ...]) -> str:
    return shortened(f"{len(names)}: {', '.join(names)}") if names else "0"


def _words(value: object) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
