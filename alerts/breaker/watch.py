"""What the controller remembers of evaluations: per target, per tier round, per pool. In memory.

It turns evaluations into events of the machine, asking the guards. A restart forgets it; the
warm-up covers the time until it is filled again. Every moment here is of the monotonic clock, in
seconds, and each evaluation costs the same however large the pool is.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from alerts.breaker.book import TierSetup
from alerts.breaker.events import Breach, Clean, Tick
from alerts.breaker.evidence import Round, Seen, find
from alerts.breaker.guard import Pool, refusal, within_minute
from alerts.breaker.pools import Pools
from alerts.breaker.records import Breaker, Cause, Key, State
from detectors.records import Verdict

SUPPRESSED_EVERY_SECONDS = 60.0


@dataclass(slots=True)
class _Tier:
    """What is remembered of a tier; `answered` is when each target last did, oldest first."""

    warm_at: float = 0.0
    answered: OrderedDict[str, float] = field(default_factory=OrderedDict)
    round: Round = field(default_factory=Round)
    judged: tuple[float, bool] | None = None  # when the last round ended, and whether breached
    drift: tuple[float, Cause] | None = None


class Watch:
    """The evaluations of all tiers, as far back as decisions need them."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._seen: dict[Key, Seen] = {}
        self._tiers: dict[str, _Tier] = {}
        self._trips: dict[str, tuple[float, ...]] = {}
        self._suppressed: dict[tuple[Key, str], float] = {}
        self._doubted_at = -math.inf

    def warm_up(self, tier: str, until: float) -> None:
        """Let nothing open in `tier` until that moment."""
        self._tier(tier).warm_at = until

    def warming(self, tier: str, at: float) -> bool:
        return at < self._tier(tier).warm_at

    def doubt(self, at: float) -> None:
        """Let no timer go by what was seen so far: nobody knows how long ago that was."""
        self._doubted_at = at

    def forget(self, key: Key) -> None:
        """Forget a target that is no more, or with an empty target its tier, but not its trips."""
        self._seen.pop(key, None)
        for place in [place for place in self._suppressed if place[0] == key]:
            del self._suppressed[place]
        if not key.target:
            self._tiers.pop(key.tier, None)
        elif key.tier in self._tiers:
            self._tiers[key.tier].answered.pop(key.target, None)
            self._tiers[key.tier].round.seen.discard(key.target)

    def forget_trips(self, tiers: Iterable[str]) -> None:
        """Forget how fast tiers tripped that are no more."""
        for tier in tiers:
            self._trips.pop(tier, None)

    def take(
        self,
        breaker: Breaker,
        verdicts: Sequence[Verdict],
        setup: TierSetup,
        at: float,
        *,
        reading_ok: bool,
    ) -> Seen:
        """Remember one evaluation of a target and return what is known of it now."""
        key = breaker.key
        own = breaker.cause if breaker.state is not State.CLOSED else None
        finding = find(verdicts, target=key.target, reading_ok=reading_ok, own=own)
        before = self._seen.get(key, Seen())
        seen = before.saw(finding, setup.parameters, at=at, answering=reading_ok)
        self._seen[key] = seen
        answered = self._tier(key.tier).answered
        answered.pop(key.target, None)
        if reading_ok:
            answered[key.target] = at
        return seen

    def take_drift(
        self, tier: str, verdicts: Sequence[Verdict], at: float, *, reading_ok: bool
    ) -> None:
        """Remember what pushed generations say of a tier; alone it never opens anything."""
        finding = find(verdicts, target="", reading_ok=reading_ok)
        if finding.drifts is not None:
            self._tier(tier).drift = (at, finding.drifts)
        elif finding.known:
            self._tier(tier).drift = None

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

    def refused(self, breaker: Breaker, seen: Seen, setup: TierSetup, at: float) -> str:
        """Return which guard refuses the trip that this evaluation asks for, if one does.

        The guards are asked first about what is known without counting who does not answer: in
        a pool that is at its limit already, that decides.
        """
        wanted = _wanted(breaker, seen, setup)
        cause = seen.finding.ejects
        if not wanted or cause is None or breaker.state is State.OPEN:
            return ""
        key = breaker.key
        if self.warming(key.tier, at):
            return "warmup: no automatic opens so soon after the start or a change of the tier"
        if breaker.state is State.HALF_OPEN:
            return ""
        size, trips = len(setup.targets), within_minute(self._trips.get(key.tier, ()), at)
        self._trips[key.tier] = trips
        out = self._pools.out(key.tier)
        withheld = len(out) - (key.target in out)
        refused = refusal(Pool(size, withheld, trips), cause.kind, setup.parameters, at)
        if refused:
            return refused
        withheld = size - 1 - self._available(key, out, setup, at)
        return refusal(Pool(size, withheld, trips), cause.kind, setup.parameters, at)

    def tripped(self, key: Key, at: float) -> None:
        """Note that a target was taken out, for the velocity guard."""
        self._trips[key.tier] = (*self._trips.get(key.tier, ()), at)

    def suppress(self, key: Key, refused: str, at: float) -> bool:
        """Return whether a refusal is worth an audit row: once a minute for a guard."""
        place = (key, refused.partition(":")[0])
        last = self._suppressed.get(place)
        if last is not None and at - last < SUPPRESSED_EVERY_SECONDS:
            return False
        self._suppressed[place] = at
        return True

    def round_event(
        self, breaker: Breaker, seen: Seen, setup: TierSetup, at: float
    ) -> Breach | Clean | None:
        """Take a target's evaluation into its tier's round; return what a round that ends means.

        `breaker` is the target's after its own event: one that is out asks for no shedding.
        """
        key, tier = breaker.key, self._tier(breaker.key.tier)
        sheds = seen.finding.sheds if seen.enough_to_shed(setup.parameters) else None
        serving = breaker.state is State.CLOSED
        if not serving:
            sheds = None
        few = seen.finding.sheds is not None and len(seen.sheds) < setup.parameters.breach_n
        unripe = serving and (few or seen.finding.held)
        current = tier.round
        if key.target in current.seen:  # one comes again before the others: judge without them
            tier.round = Round()
            tier.round.saw(key.target, seen.finding, sheds, unripe=unripe)
            return self._judged(key.tier, current, setup, at)
        current.saw(key.target, seen.finding, sheds, unripe=unripe)
        if len(current.seen) < len(setup.targets):
            return None
        tier.round = Round()
        return self._judged(key.tier, current, setup, at)

    def tick(self, breaker: Breaker, setup: TierSetup, at: float) -> Tick:
        """Return the tick of one breaker."""
        key, lease = breaker.key, setup.parameters.lease_seconds
        if not key.target:
            judged, breaching = self._tier(key.tier).judged or (at, False)
            return Tick(breaching=breaching and at - judged <= lease)
        seen = self._seen.get(key, Seen())
        fresh = seen.fresh(at, lease) and seen.at is not None and seen.at > self._doubted_at
        return Tick(
            breaching=fresh and seen.finding.ejects is not None,
            may_probe=not self._pools.another_probes(key),
            answering=fresh and seen.answering,
            heard=fresh,
            warming=self.warming(key.tier, at),
        )

    def _tier(self, tier: str) -> _Tier:
        return self._tiers.setdefault(tier, _Tier())

    def _judged(
        self, tier: str, ended: Round, setup: TierSetup, at: float
    ) -> Breach | Clean | None:
        memory = self._tier(tier)
        drift = None
        if setup.drift_may_shed and memory.drift is not None:
            since, cause = memory.drift
            drift = cause if at - since <= setup.parameters.lease_seconds else None
        why = ended.verdict(drift)
        memory.judged = (at, why is not None)
        if why is not None:
            return Breach(why, trips=not self.warming(tier, at))
        return Clean() if ended.known and not ended.unripe else None

    def _available(self, key: Key, out: AbstractSet[str], setup: TierSetup, at: float) -> int:
        """Return how many targets of the pool besides `key` take full traffic and answer."""
        answered = self._tier(key.tier).answered
        while answered and at - next(iter(answered.values())) > setup.parameters.lease_seconds:
            answered.popitem(last=False)
        absent = {key.target, *(target for target in out if target in answered)}
        return len(answered) - sum(target in answered for target in absent)


def _wanted(breaker: Breaker, seen: Seen, setup: TierSetup) -> bool:
    """Return whether the evaluation asks for a trip, guards aside."""
    if breaker.state is State.OPEN:
        return seen.confirmed
    if breaker.state is State.HALF_OPEN:
        return seen.finding.ejects is not None
    return seen.enough_to_eject(setup.parameters)
