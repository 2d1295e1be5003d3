"""What the controller remembers of evaluations: per target, per tier round, per pool. In memory.

It turns evaluations into events of the machine, asking the guards. A restart forgets it; the
warm-up covers the time until it is filled again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from alerts.breaker.book import TierSetup
from alerts.breaker.events import Breach, Clean, Tick
from alerts.breaker.evidence import Round, Seen, find
from alerts.breaker.guard import Pool, refusal, within_minute
from alerts.breaker.records import Breaker, Cause, Key, State
from detectors.records import Verdict

SUPPRESSED_EVERY = timedelta(seconds=60)


class Watch:
    """The evaluations of all tiers, as far back as decisions need them."""

    def __init__(self) -> None:
        self.warm_at: datetime | None = None
        self._seen: dict[Key, Seen] = {}
        self._rounds: dict[str, Round] = {}
        self._last_round: dict[str, tuple[datetime, bool]] = {}
        self._drift: dict[str, tuple[datetime, Cause]] = {}
        self._trips: dict[str, tuple[datetime, ...]] = {}
        self._suppressed: dict[tuple[Key, str], datetime] = {}

    def forget(self, key: Key) -> None:
        """Forget a target that is no more, or with an empty target its tier."""
        self._seen.pop(key, None)
        for place in [place for place in self._suppressed if place[0] == key]:
            del self._suppressed[place]
        if not key.target:
            for memory in (self._rounds, self._last_round, self._drift, self._trips):
                memory.pop(key.tier, None)

    def warming(self, now: datetime) -> bool:
        return self.warm_at is not None and now < self.warm_at

    def take(
        self,
        breaker: Breaker,
        verdicts: Sequence[Verdict],
        setup: TierSetup,
        now: datetime,
        *,
        reading_ok: bool,
    ) -> Seen:
        """Remember one evaluation of a target and return what is known of it now."""
        key = breaker.key
        own = breaker.cause if breaker.state is not State.CLOSED else None
        finding = find(verdicts, target=key.target, reading_ok=reading_ok, own=own)
        before = self._seen.get(key, Seen())
        seen = before.saw(finding, setup.parameters, at=now, answering=reading_ok)
        self._seen[key] = seen
        return seen

    def take_drift(
        self, tier: str, verdicts: Sequence[Verdict], now: datetime, *, reading_ok: bool
    ) -> None:
        """Remember what pushed generations say of a tier; alone it never opens anything."""
        finding = find(verdicts, target="", reading_ok=reading_ok)
        if finding.drifts is not None:
            self._drift[tier] = (now, finding.drifts)
        elif finding.known:
            self._drift.pop(tier, None)

    def event(
        self, breaker: Breaker, seen: Seen, setup: TierSetup, refused: str
    ) -> Breach | Clean | None:
        """Return what the evaluation means to the target's breaker; missing data is nothing."""
        finding = seen.finding
        if not finding.known:
            return None
        if finding.ejects is None:
            return Clean()
        wanted = _wanted(breaker, seen, setup)
        return Breach(finding.ejects, trips=wanted and not refused)

    def refused(
        self,
        breaker: Breaker,
        seen: Seen,
        pool: Mapping[Key, Breaker],
        setup: TierSetup,
        now: datetime,
    ) -> str:
        """Return which guard refuses the trip that this evaluation asks for, if one does."""
        wanted = _wanted(breaker, seen, setup)
        cause = seen.finding.ejects
        if not wanted or cause is None or breaker.state is State.OPEN:
            return ""
        if self.warming(now):
            return "warmup: no automatic opens so soon after the start"
        if breaker.state is State.HALF_OPEN:
            return ""
        tier = breaker.key.tier
        self._trips[tier] = within_minute(self._trips.get(tier, ()), now)
        others = [other for key, other in pool.items() if key.target and key != breaker.key]
        withheld = sum(self._out(other, setup, now) for other in others)
        view = Pool(len(setup.targets), withheld, self._trips[tier])
        return refusal(view, cause.kind, setup.parameters, now)

    def tripped(self, key: Key, now: datetime) -> None:
        """Note that a target was taken out, for the velocity guard."""
        self._trips[key.tier] = (*self._trips.get(key.tier, ()), now)

    def suppress(self, key: Key, refused: str, now: datetime) -> bool:
        """Return whether a refusal is worth an audit row: once a minute for a guard."""
        place = (key, refused.partition(":")[0])
        last = self._suppressed.get(place)
        if last is not None and now - last < SUPPRESSED_EVERY:
            return False
        self._suppressed[place] = now
        return True

    def round_event(
        self, key: Key, breaker: Breaker, setup: TierSetup, now: datetime
    ) -> Breach | Clean | None:
        """Take the target `key` into its tier's round; return what a round that ends means.

        `breaker` is the target's after its own event: one that is out asks for no shedding.
        """
        seen, tier = self._seen[key], key.tier
        sheds = seen.finding.sheds if seen.enough_to_shed(setup.parameters) else None
        if breaker.state is not State.CLOSED or self.warming(now):
            sheds = None
        seen = replace(seen, wants_shed=sheds)
        self._seen[key] = seen
        current = self._rounds.get(tier, Round())
        if key.target in current.seen:  # one comes again before the others: judge without them
            event = self._judged(tier, current, setup, now)
            self._rounds[tier] = Round().saw(key.target, seen)
            return event
        current = current.saw(key.target, seen)
        if current.seen >= setup.targets.keys():
            self._rounds[tier] = Round()
            return self._judged(tier, current, setup, now)
        self._rounds[tier] = current
        return None

    def tick(
        self, breaker: Breaker, pool: Mapping[Key, Breaker], setup: TierSetup, now: datetime
    ) -> Tick:
        """Return the tick of one breaker."""
        key, lease = breaker.key, setup.parameters.lease_seconds
        if not key.target:
            at, breaching = self._last_round.get(key.tier, (now, False))
            return Tick(breaching=breaching and (now - at).total_seconds() <= lease)
        seen = self._seen.get(key, Seen())
        fresh = seen.fresh(now, lease)
        probing = any(
            other.state is State.HALF_OPEN
            for place, other in pool.items()
            if place.target and place != key
        )
        return Tick(
            breaching=fresh and seen.finding.ejects is not None,
            may_probe=not probing,
            answering=fresh and seen.answering,
        )

    def _judged(
        self, tier: str, ended: Round, setup: TierSetup, now: datetime
    ) -> Breach | Clean | None:
        drift = None
        if setup.drift_may_shed and tier in self._drift:
            at, cause = self._drift[tier]
            age = (now - at).total_seconds()
            drift = cause if age <= setup.parameters.lease_seconds else None
        why = ended.verdict(drift)
        self._last_round[tier] = (now, why is not None)
        if why is not None:
            return Breach(why, trips=not self.warming(now))
        return Clean() if ended.known else None

    def _out(self, other: Breaker, setup: TierSetup, now: datetime) -> bool:
        """Return whether a target takes less than full traffic, for whatever reason."""
        if other.state is not State.CLOSED or other.effective_ratio < 1:
            return True
        seen = self._seen.get(other.key, Seen())
        return not (seen.answering and seen.fresh(now, setup.parameters.lease_seconds))


def _wanted(breaker: Breaker, seen: Seen, setup: TierSetup) -> bool:
    """Return whether the evaluation asks for a trip, guards aside."""
    if breaker.state is State.OPEN:
        return seen.confirmed
    if breaker.state is State.HALF_OPEN:
        return seen.finding.ejects is not None
    return seen.enough_to_eject(setup.parameters)
