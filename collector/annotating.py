"""What was noticed about targets is written down, and held against what shadow tiers saw before.

A change that is kept survives a restart of the service: what a source tells for the first time is
compared with the last row, so that a change while nobody looked is found, too, and told once. A
target that is new in its tier is compared with the tier: where every replica has a name of its own,
an upgrade is nothing but new targets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar

from collector.store import Store
from collector.store import annotations as stored
from collector.store.annotations import Annotation, Chosen
from collector.store.columns import CODE_LENGTH
from collector.store.session import StoreError
from detectors.records import Reading, Verdict
from detectors.remarks import Finding, Noticed

T = TypeVar("T")
Key: TypeAlias = tuple[str, str, str]  # tier, target, what
MAX_WAITING: Final = 5_000
MOST_KNOWN: Final = 50_000
MOST_OF_A_TIER: Final = 2_000
AT_ONCE: Final = 500
LOOK_BACK: Final = timedelta(days=90)
FINDING_HOLDS: Final = timedelta(days=1)
SETTLED: Final = timedelta(minutes=10)  # for so long a tier is being met, target by target
MOST_VALUES: Final = 64  # of one thing in a tier
UNSEEN: Final = "unseen_by_shadow"
REHEARSED: Final = frozenset(  # what a shadow tier is for
    {
        *("engine", "version", "model", "revision", "weights", "quantization", "dtype"),
        *("kv_cache_dtype", "generation_config", "chat_template", "logprobs_mode"),
    }
)
_EVENTS: Final = frozenset({"restart"})  # no state that could be compared
_WITHOUT_VALUE: Final = frozenset({"weights"})  # whose hash differs from machine to machine


def unseen_by_shadow(change: Annotation, shadow_history: Iterable[Annotation]) -> Finding | None:
    """Return a finding if a change of a production tier was seen by no shadow tier before.

    Args:
        change: What was noticed about a target of the tier.
        shadow_history: What was noticed about the tier's shadow tiers, the first sights included.

    Returns:
        None where nothing is to be said: the change is none of `REHEARSED`, it is a first sight,
        or a shadow tier had the same before.
    """
    if change.first or change.what not in REHEARSED:
        return None
    for seen in shadow_history:
        same = seen.after == change.after or change.what in _WITHOUT_VALUE
        if seen.what == change.what and same and seen.at <= change.at:
            return None
    text = (
        f"{change.what} changed from {change.before or '?'} to {change.after or '?'} and no shadow "
        "tier had it before; try the next change on a tier with `shadow_of` first"
    )
    return Finding(UNSEEN, "up", text)


class KeepAnnotations:
    """Every `noticed` of a reading into the store: gathered, and written once a tick.

    Of one (tier, target, what) one row is written in `every_seconds`; changes in between are
    counted in the next one. `dropped` counts what there was no room for.
    """

    name = "annotations"

    def __init__(
        self, store: Store, *, now: Callable[[], datetime], every_seconds: float = 60.0
    ) -> None:
        self.dropped = 0
        self._store = store
        self._now = now
        self._every = timedelta(seconds=every_seconds)
        self._shadows: Mapping[str, Sequence[str]] = {}
        self._known: dict[Key, Annotation] = {}
        self._of_tier: dict[tuple[str, str], dict[str, datetime]] = {}  # values, when first seen
        self._written: dict[Key, datetime] = {}
        self._waiting: dict[Key, Annotation] = {}
        self._history: dict[str, deque[Annotation]] = {}
        self._findings: dict[Key, tuple[Finding, datetime]] = {}

    def use(self, shadows: Mapping[str, Sequence[str]]) -> None:
        """Judge changes of these production tiers by their shadow tiers (none may be named)."""
        self._shadows = shadows
        tiers = {*shadows, *(it for found in shadows.values() for it in found)}
        for gone in self._history.keys() - tiers:
            del self._history[gone]
        for key in [key for key in self._findings if key[0] not in shadows]:
            del self._findings[key]

    async def start(self) -> None:
        """Take over what was known at the last stop."""
        for it in reversed(await self._store.read(stored.latest)):
            self._remember(it)
        chosen = Chosen(since=self._now() - LOOK_BACK)
        lately = await self._store.read(stored.history, chosen, limit=5 * MOST_OF_A_TIER)
        for it in reversed(lately):
            self._note(it)
            if it.finding:
                self._hold(it, Finding(UNSEEN, "up", it.finding))

    async def take(
        self,
        verdicts: Sequence[Verdict],  # noqa: ARG002  # every action is given them
        reading: Reading | None,
    ) -> None:
        if reading is not None:
            for noticed in reading.noticed:
                self._see(reading, noticed)

    async def flush(self, *, final: bool = False) -> None:
        """Write what is due, a bounded piece at a time; what cannot be written waits on.

        The `final` one, at a stop, writes everything.
        """
        now = self._now()
        due = [
            key
            for key in self._waiting
            if final or key not in self._written or now - self._written[key] >= self._every
        ]
        for start in range(0, len(due), AT_ONCE):
            piece = due[start : start + AT_ONCE]
            rows = {key: self._waiting.pop(key) for key in piece}
            try:
                await self._store.write(stored.record, list(rows.values()))
            except StoreError:
                self._waiting = {**rows, **self._waiting}
                raise
            for key in rows:
                _put(self._written, key, now)

    def with_findings(self, reading: Reading) -> Reading:
        """Return the reading with what holds of its target's changes."""
        if not self._findings:
            return reading
        found, now = [], self._now()
        for what in REHEARSED:
            key = (reading.tier, reading.target, what)
            finding, until = self._findings.get(key, (None, now))
            if finding is not None and now < until:
                found.append(finding)
            elif finding is not None:
                del self._findings[key]
        return replace(reading, findings=(*reading.findings, *found)) if found else reading

    def _see(self, reading: Reading, noticed: Noticed) -> None:
        noticed = replace(noticed, what=noticed.what[:CODE_LENGTH])
        key = (reading.tier, reading.target, noticed.what)
        before = self._known.get(key)
        it = Annotation(
            at=reading.at,
            tier=reading.tier,
            target=reading.target,
            what=noticed.what,
            before=noticed.before,
            after=noticed.after,
            first=noticed.first,
        )
        if noticed.first and before is not None:
            if before.after == noticed.after:
                return
            it = replace(it, before=before.after, first=False)
        elif noticed.first:
            it = self._new_in_tier(it)
        finding = self._judged(it)
        if finding is not None:
            it = replace(it, finding=finding.text)
            self._hold(it, finding)
        self._remember(it)
        self._note(it)
        self._gather(key, it)

    def _new_in_tier(self, it: Annotation) -> Annotation:
        """Return the first sight of a target as a change, if its tier has long had other values."""
        values = self._of_tier.get((it.tier, it.what), {})
        if it.what not in REHEARSED or it.after in values:
            return it
        settled = [value for value, since in values.items() if it.at - since >= SETTLED]
        return replace(it, before=settled[-1], first=False) if settled else it

    def _judged(self, it: Annotation) -> Finding | None:
        shadows = self._shadows.get(it.tier)
        if shadows is None:
            return None
        seen = [other for tier in shadows for other in self._history.get(tier, ())]
        return unseen_by_shadow(it, seen)

    def _gather(self, key: Key, it: Annotation) -> None:
        """Let a row wait for the next flush; one that waits already takes the change in."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            it = replace(
                it,
                before=waiting.before,
                first=waiting.first,
                times=waiting.times + 1,
                finding=it.finding or waiting.finding,
            )
        elif len(self._waiting) >= MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
            self.dropped += 1
        self._waiting[key] = it

    def _remember(self, it: Annotation) -> None:
        key = (it.tier, it.target, it.what)
        if it.what not in _EVENTS:
            _put(self._known, key, it)
        if it.what in REHEARSED:
            values = self._of_tier.setdefault((it.tier, it.what), {})
            if it.after not in values and len(values) >= MOST_VALUES:
                del values[next(iter(values))]
            values.setdefault(it.after, it.at)

    def _note(self, it: Annotation) -> None:
        """Keep what was seen of a tier, for those whose shadow it is."""
        if it.what in REHEARSED:
            kept = self._history.setdefault(it.tier, deque(maxlen=MOST_OF_A_TIER))
            kept.append(it)

    def _hold(self, it: Annotation, finding: Finding) -> None:
        _put(self._findings, (it.tier, it.target, it.what), (finding, it.at + FINDING_HOLDS))


def _put(kept: dict[Key, T], key: Key, value: T) -> None:
    """Keep a value; when there are too many the one known longest is forgotten."""
    if key not in kept and len(kept) >= MOST_KNOWN:
        del kept[next(iter(kept))]
    kept[key] = value
