"""The invariants of the breaker, in any order of events.

Events are evaluations, time, people, failures, restarts, reloads, switched modes, clocks that are
set, and commits that went through and were reported as failed.

I1 guard, I3 (epoch, seq) rises, I4 a gateway withholds no more than is in force, I5 half open
ends, I6 the ramp rises, I7 overrides rule and end, I8 neither a restart nor a clock lengthens an
open time, I9 missing data never opens, I10 observe sends nothing, I11 trips a minute.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from alerts.breaker.guard import limit, velocity
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.records import Breaker, DeliveryStatus, Forced, Key, Mode, State
from alerts.embed.receiver import Ledger as Gateway
from alerts.journal import JournalError
from tests.alerts.breaker.scene import Scene, targets

CAUSES = st.sampled_from(
    ["kv_cache_saturated", "engine_stalled", "logits_corrupted", "slots_saturated", "input_drift"]
)
SPOTS = st.integers(min_value=0, max_value=9)


class BreakerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.numbers: dict[Key, tuple[int, int]] = {}
        self.trips: list[float] = []
        self.forced_at: dict[Key, float] = {}
        self.before_observe: set[str] = set()
        self.switched = False

    @initialize(
        size=st.integers(min_value=1, max_value=7), mode=st.sampled_from(["observe", "enforce"])
    )
    def begin(self, size: int, mode: Mode) -> None:
        parameters = BreakerParameters(warmup_seconds=0, breach_n=2, breach_m=3, ramp_evaluations=1)
        self.scene = Scene(size, mode, parameters)
        self.gateway = Gateway(self.scene.clock.monotonic)
        self.run(self.scene.start())

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        before, shown = self.machines(), self.scene.controller.breakers
        seen = len(self.scene.disk.transitions)
        self.loop.run_until_complete(work)
        self.check_numbers(shown, self.scene.controller.breakers)
        self.check(before, self.machines(), seen)

    def machines(self) -> dict[Key, Breaker]:
        controller = self.scene.controller
        return {**controller.breakers, **controller.shadows}

    def target(self, spot: int) -> str:
        return list(targets(self.scene.size))[spot % self.scene.size]

    @rule(spot=SPOTS, cause=CAUSES)
    def breach(self, spot: int, cause: str) -> None:
        self.run(self.scene.scrape(self.target(spot), cause))

    @rule(spot=SPOTS, cause=CAUSES, times=st.integers(min_value=2, max_value=4))
    def breach_on(self, spot: int, cause: str, times: int) -> None:
        for _ in range(times):
            self.scene.clock.forward(5)
            self.run(self.scene.scrape(self.target(spot), cause))

    @rule(spot=SPOTS, cause=CAUSES)
    def trip(self, spot: int, cause: str) -> None:
        """What single evaluations seldom add up to: all others are well, one is not."""
        self.all_well()
        self.breach_on(spot, cause, 3)

    @rule()
    def all_well(self) -> None:
        self.run(self.scene.all_well())

    @rule(spot=SPOTS)
    def missing(self, spot: int) -> None:
        key = Key("chat", self.target(spot))
        before = self.machines()[key]
        self.run(self.scene.scrape(key.target, ok=False))
        assert self.machines()[key] == before  # I9

    @rule(seconds=st.sampled_from([1, 7, 35, 130, 400]))
    def time_passes(self, seconds: int) -> None:
        self.scene.clock.forward(seconds)
        for _ in range(3):
            self.run(self.scene.controller.tick())

    @rule()
    def silence(self) -> None:
        """Data goes missing for long: I9 over time, nothing closed ever opens."""
        closed = {key for key, breaker in self.machines().items() if breaker.state is State.CLOSED}
        for _ in range(20):
            self.scene.clock.forward(30)
            self.run(self.scene.controller.tick())
        now = self.machines()
        assert all(now[key].state is State.CLOSED for key in closed)

    @rule(spot=SPOTS, forced=st.sampled_from(["forced_open", "forced_closed"]), tier=st.booleans())
    def force(self, spot: int, forced: Forced, tier: bool) -> None:
        if self.scene.mode == "enforce":
            key = Key("chat", "" if tier else self.target(spot))
            self.run(self.forced(key, forced))

    async def forced(self, key: Key, forced: Forced) -> None:
        override = self.scene.controller.override
        try:
            await override(key, forced, actor="ana", reason="a test", seconds=300)
        except JournalError:
            assert not self.scene.controller.journal_writable
        else:
            self.forced_at[key] = self.scene.clock.seconds

    @rule(spot=SPOTS)
    def release(self, spot: int) -> None:
        self.run(self.released(Key("chat", self.target(spot))))

    async def released(self, key: Key) -> None:
        before = self.machines()[key]
        try:
            after = await self.scene.controller.release(key, actor="ana", reason="a test")
        except JournalError:
            assert not self.scene.controller.journal_writable
            assert self.machines()[key].override == before.override
        else:
            assert after.override is None

    @rule(full=st.booleans())
    def disk(self, full: bool) -> None:
        self.scene.disk.full = full

    @rule(times=st.integers(min_value=1, max_value=3))
    def in_doubt(self, times: int) -> None:
        self.scene.disk.in_doubt = times

    @rule(size=st.integers(min_value=1, max_value=7))
    def reload(self, size: int) -> None:
        self.scene.size = size
        self.run(self.scene.reload())
        assert {key.target for key in self.machines()} == {"", *targets(size)}

    @rule()
    def switch_mode(self) -> None:
        self.scene.mode = "observe" if self.scene.mode == "enforce" else "enforce"
        self.before_observe = set(self.scene.disk.deliveries)
        self.switched = True
        self.run(self.scene.reload())
        for breaker in self.machines().values():
            assert (breaker.state, breaker.effective_ratio) == (State.CLOSED, 1.0)

    @rule(
        seconds=st.sampled_from([-86_400, -300, -30, 30, 200, 86_400]),
        spot=SPOTS,
        while_open=st.booleans(),
    )
    def clock_is_set(self, seconds: int, spot: int, while_open: bool) -> None:
        if while_open:
            self.trip(spot, "kv_cache_saturated")
        self.ticks(2)
        before, now = self.machines(), self.scene.clock()
        settled = self.scene.controller.journal_writable  # nothing that was due waits for it
        self.scene.clock.set(seconds)
        self.ticks(2)
        if not settled:
            return
        for key, breaker in self.machines().items():
            was = before[key]
            if not key.target or breaker.state is not State.OPEN:
                continue
            assert was.state is State.OPEN  # I9: a clock is no evidence
            assert breaker.trip_level == was.trip_level
            if breaker.open_until is not None and was.open_until is not None:
                left = breaker.open_until - self.scene.clock()
                assert left <= max(was.open_until - now, timedelta(0))  # I8

    @rule()
    def messages_arrive(self) -> None:
        """I4: whatever was in doubt, a gateway that hears the newest withholds no more."""
        self.ticks(2)
        rows, late = self.scene.disk.deliveries, set()
        for row in sorted(rows.values(), key=lambda row: (row.epoch, row.seq)):
            if row.status is not DeliveryStatus.PENDING:
                continue
            if row.expires_at <= self.scene.clock():  # never sent: the gateway's own lease ends
                late.add(row.key.target)
                continue
            self.gateway.apply(json.loads(row.body)["data"])
            rows[row.id] = replace(row, status=DeliveryStatus.DELIVERED)
        if self.scene.controller.journal_writable:
            for target, held in self.gateway.strictest().items():
                breaker = self.scene.controller.breakers.get(Key("chat", target))
                ratio = breaker.effective_ratio if breaker else 1.0
                assert held.ratio >= ratio or target in late

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.run(self.scene.controller.tick())

    @rule(seconds=st.sampled_from([0, 20, 200]))
    def killed_and_restarted(self, seconds: int) -> None:
        self.scene.disk.full = False
        persisted = dict(self.scene.disk.breakers)
        self.scene.clock.forward(seconds)
        self.trips = []  # the velocity guard starts anew
        self.run(self.scene.restart())
        self.forced_at = dict.fromkeys(self.machines(), self.scene.clock.seconds)
        if self.scene.mode == "observe":
            return
        for key, breaker in self.machines().items():
            before = persisted.get(key)
            if before is None or before.state is not State.OPEN or not key.target:
                continue
            passed = before.open_until is None or before.open_until <= self.scene.clock()
            expected = State.HALF_OPEN if passed else State.OPEN
            assert breaker.state is expected
            if not passed and breaker.open_until is not None and before.open_until is not None:
                assert breaker.open_until <= before.open_until  # I8

    def check_numbers(self, before: Mapping[Key, Breaker], after: Mapping[Key, Breaker]) -> None:
        for key, breaker in after.items():
            numbers = (breaker.epoch, breaker.seq)
            assert numbers >= self.numbers.get(key, (0, 0))  # I3
            if key in before and before[key].effective_ratio != breaker.effective_ratio:
                assert numbers > self.numbers[key]  # I3
            self.numbers[key] = numbers

    def check(self, before: dict[Key, Breaker], after: dict[Key, Breaker], seen: int) -> None:
        for key, breaker in after.items():
            if key in before:
                self.check_step(before[key], breaker)
        for transition in self.scene.disk.transitions[seen:]:
            self.check_trip(transition.kind, transition.before, transition.after)

    def check_step(self, before: Breaker, after: Breaker) -> None:
        same_override = before.override is not None and before.override == after.override
        if same_override:
            assert before.effective_ratio == after.effective_ratio  # I7
        both = bool(after.key.target) and State.HALF_OPEN is before.state is after.state
        if both and before.epoch == after.epoch and before.override == after.override:
            assert after.ramp_step >= before.ramp_step  # I6
            assert after.admit_ratio >= before.admit_ratio  # I6

    def check_trip(self, kind: str, before: Breaker, after: Breaker) -> None:
        trip = kind in {"open", "would_open"} and before.state is State.CLOSED
        if not trip or not after.key.target or after.cause is None:
            return
        machines = self.machines()
        if machines[after.key].state is not State.OPEN:
            return  # in doubt: on disk, and not in force
        self.trips.append(self.scene.clock.seconds)
        out = [k for k, b in machines.items() if k.target and b.state is not State.CLOSED]
        most = limit(self.scene.size, after.cause.kind, self.scene.parameters)
        assert len(out) <= most  # I1
        assert len(out) < self.scene.size  # I1: never the last
        lately = [at for at in self.trips if self.scene.clock.seconds - at < 60]
        assert len(lately) <= velocity(self.scene.size, self.scene.parameters)  # I11
        assert after.cause.kind != "quality"

    @invariant()
    def half_open_and_overrides_end(self) -> None:
        if not hasattr(self, "scene") or self.scene.disk.full:
            return
        longest = self.scene.parameters.half_open_deadline_seconds
        for breaker in self.machines().values():
            if breaker.state is State.HALF_OPEN:  # I5
                assert breaker.half_open_deadline is not None
                ahead = breaker.half_open_deadline - self.scene.clock()
                assert ahead <= timedelta(seconds=longest)
            if breaker.override is not None:  # I7: ended on the first tick after its time
                override = breaker.override
                assert override.expires_at <= override.since + timedelta(seconds=300)

    @rule()
    def overrides_end(self) -> None:
        """I7: on the monotonic clock, whatever the wall clock did."""
        self.ticks(2)
        if self.scene.disk.full or not self.scene.controller.journal_writable:
            return
        for key, breaker in self.machines().items():
            if breaker.override is not None:
                assert self.scene.clock.seconds - self.forced_at[key] <= 300

    @invariant()
    def what_is_indexed_is_what_is_there(self) -> None:
        if not hasattr(self, "scene"):
            return
        book = self.scene.controller._book
        machines = book.machines.values()
        out = {b.key.target for b in machines if b.key.target and not full(b)}
        probing = {b.key for b in machines if b.key.target and b.state is State.HALF_OPEN}
        waiting = {b.key for b in machines if b.state is not State.CLOSED or b.override}
        assert set(book.pools.out("chat")) == out
        assert book.pools.waiting == waiting
        assert all(book.pools.another_probes(key) == bool(probing - {key}) for key in book.machines)
        watch, setup, at = (
            self.scene.controller._watch,
            self.scene.setup(),
            self.scene.clock.seconds,
        )
        there = {
            b.key.target
            for b in machines
            if full(b)
            and (seen := watch._seen.get(b.key))
            and seen.answering
            and seen.fresh(at, 60)
        }
        for target in setup.targets:
            found = watch._available(Key("chat", target), out, setup, at)
            assert found == len(there - {target})

    @invariant()
    def observe_sends_nothing(self) -> None:
        if hasattr(self, "scene") and self.scene.mode == "observe":  # I10
            for name in self.scene.disk.deliveries.keys() - self.before_observe:
                data = json.loads(self.scene.disk.deliveries[name].body)["data"]
                assert self.switched  # what was withheld before is given back
                assert data["admit_ratio"] == 1.0
            assert all(b.effective_ratio == 1 for b in self.scene.controller.breakers.values())
            assert self.switched or all(row.dry_run for row in self.scene.disk.transitions)
            document = json.loads(self.scene.controller.state_document().encode())
            assert {entry["admit_ratio"] for entry in document["targets"]} == {1.0}

    @invariant()
    def what_is_persisted_is_what_is_in_force(self) -> None:
        if not hasattr(self, "scene") or not self.scene.controller.journal_writable:
            return
        for key, breaker in self.scene.controller.breakers.items():
            written = self.scene.disk.breakers.get(key)
            if breaker.effective_ratio < 1:
                assert written is not None
                assert (written.seq, written.effective_ratio) == (
                    breaker.seq,
                    breaker.effective_ratio,
                )

    def teardown(self) -> None:
        self.loop.close()


def full(breaker: Breaker) -> bool:
    return breaker.state is State.CLOSED and breaker.effective_ratio == 1


QUICK = settings(
    max_examples=15,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_the_invariants_hold_in_any_order_of_events() -> None:
    run_state_machine_as_test(BreakerMachine, settings=QUICK)


@pytest.mark.slow
def test_the_invariants_hold_over_many_long_histories() -> None:
    longer = settings(QUICK, max_examples=300, stateful_step_count=60)
    run_state_machine_as_test(BreakerMachine, settings=longer)
