"""The incident, chapter by chapter: what is done, and what must then be seen.

A chapter acts on its surroundings through `Levers` and is seen when each of its marks is. A mark
looks at the service from outside and answers with what it saw, in words, or with nothing yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from collector.demo.client import Counts
from collector.demo.facts import Facts, TransitionFact, VerdictFact
from collector.demo.recorded import BASELINE, HOT, JSON_BLOBS

SHIFTED = "batch"  # the upstream that starts to send JSON
FIRST, SECOND = "c", "b"  # the targets whose KV cache fills, in this order
RAISED = frozenset({"warning", "critical"})
CRITICAL = frozenset({"critical"})


class Levers(Protocol):
    """What the story may do to the world around the service. It never touches the service."""

    def send_prompts(self, segment: str, prompts: str) -> None:
        """Let one upstream draw its prompts from another set of recordings."""
        ...

    async def play(self, targets: tuple[str, ...], scene: str) -> None:
        """Let targets play another scene."""
        ...

    async def answer_from(self, answers: str) -> None:
        """Let all targets answer from another set of recordings."""
        ...


@dataclass(frozen=True, slots=True)
class Since:
    """What was when a chapter began."""

    at: datetime
    counts: Counts


@dataclass(frozen=True, slots=True)
class Moment:
    """One look: what the service shows, and what the client has counted so far."""

    facts: Facts
    counts: Counts


Seen: TypeAlias = Callable[[Moment, Since], str]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that must be seen; `seen` says it in words, and nothing while it is not there."""

    name: str
    seen: Seen


@dataclass(frozen=True, slots=True)
class Chapter:
    """One step of the incident.

    It lasts `least_seconds`, and then until all marks are seen or `most_seconds` have passed.
    Verdicts of the causes in `fading` are still about the chapter before: their windows hold its
    requests.
    """

    key: str
    title: str
    told: str
    act: Callable[[Levers], Awaitable[None]]
    marks: tuple[Mark, ...]
    least_seconds: float
    most_seconds: float
    fading: frozenset[str] = frozenset()


def _baseline_of(scope: str) -> Seen:
    def seen(moment: Moment, _since: Since) -> str:
        found = moment.facts.baseline(scope)
        if found is None or found.stage == "collecting":
            return ""
        return f"{scope}: baseline of {found.requests:,} requests, {found.stage}"

    return seen


def _verdict(
    scope: str, *, signal: str = "", cause: str = "", levels: frozenset[str] = RAISED
) -> Seen:
    """See a raised verdict about `scope`; `signal` is the beginning of the signal's name."""

    def fits(row: VerdictFact, since: Since) -> bool:
        return (
            row.scope == scope
            and row.level in levels
            and row.at >= since.at
            and row.signal.startswith(signal)
            and cause in ("", row.cause)
        )

    def seen(moment: Moment, since: Since) -> str:
        found = [row for row in moment.facts.verdicts if fits(row, since)]
        return found[0].words if found else ""

    return seen


def _transition(target: str, *kinds: str) -> Seen:
    def fits(row: TransitionFact, since: Since) -> bool:
        return row.target == target and row.kind in kinds and row.at >= since.at

    def seen(moment: Moment, since: Since) -> str:
        found = [row for row in moment.facts.transitions if fits(row, since)]
        return found[0].words if found else ""

    return seen


def _state(target: str, state: str) -> Seen:
    def seen(moment: Moment, _since: Since) -> str:
        found = moment.facts.breaker(target)
        return f"{target} is {state}" if found and found.shown_state == state else ""

    return seen


def _closed_again(moment: Moment, since: Since) -> str:
    closed = _transition(FIRST, "closed")(moment, since)
    return closed if _state(FIRST, "closed")(moment, since) else ""


def _shedding(moment: Moment, _since: Since) -> str:
    tier = moment.facts.breaker("")
    if tier is None or tier.effective_ratio >= 1:
        return ""
    return f"the tier admits a share of {tier.effective_ratio:.2f}"


def _admitting(moment: Moment, _since: Since) -> str:
    tier = moment.facts.breaker("")
    return "the tier admits everything" if tier and tier.effective_ratio >= 1 else ""


def _client_shed(moment: Moment, since: Since) -> str:
    shed = moment.counts.minus(since.counts).shed
    return f"{shed:,} answers of 503 with Retry-After" if shed else ""


def _client_answered(moment: Moment, since: Since) -> str:
    answered = moment.counts.minus(since.counts).answered
    return f"{answered:,} answers of 200 beside them" if answered else ""


async def _nothing(_levers: Levers) -> None:
    return None


async def _json_prompts(levers: Levers) -> None:
    levers.send_prompts(SHIFTED, JSON_BLOBS)


async def _hot_answers(levers: Levers) -> None:
    levers.send_prompts(SHIFTED, BASELINE)
    await levers.answer_from(HOT)


async def _first_full(levers: Levers) -> None:
    await levers.answer_from(BASELINE)
    await levers.play((FIRST,), "kvfull")


async def _second_full(levers: Levers) -> None:
    await levers.play((SECOND,), "kvfull")


async def _all_normal(levers: Levers) -> None:
    await levers.play((FIRST, SECOND), "normal")


CHAPTERS: tuple[Chapter, ...] = (
    Chapter(
        key="baseline",
        title="Normal traffic, and a baseline forming",
        told="Three upstreams send recorded prompts to three targets.",
        act=_nothing,
        marks=(
            Mark("baseline of the tier", _baseline_of("tier")),
            Mark("baseline of the segment", _baseline_of(f"segment:{SHIFTED}")),
        ),
        least_seconds=3,
        most_seconds=45,
    ),
    Chapter(
        key="input",
        title="One upstream starts to send JSON",
        told=f"Segment {SHIFTED!r} sends JSON blobs; the other two do not change.",
        act=_json_prompts,
        marks=(Mark("input drift", _verdict(f"segment:{SHIFTED}", signal="prompt_")),),
        least_seconds=6,
        most_seconds=25,
    ),
    Chapter(
        key="output",
        title="The answers change, the requests do not",
        told="Prompts are normal again, though the JSON of before is in the windows for a while; "
        "every target now samples at temperature 1.5, unasked.",
        act=_hot_answers,
        marks=(Mark("output drift", _verdict("tier", signal="output_surprisal_mean_nats")),),
        least_seconds=6,
        most_seconds=25,
        fading=frozenset({"input_drift"}),
    ),
    Chapter(
        key="saturation",
        title="The KV cache of one target fills, and its queue grows",
        told=f"Target {FIRST!r} plays the pages of a full KV cache.",
        act=_first_full,
        marks=(
            Mark(
                "saturation",
                _verdict(f"target:{FIRST}", cause="kv_cache_saturated", levels=CRITICAL),
            ),
            Mark("growing queue", _verdict(f"target:{FIRST}", cause="queue_growing")),
            Mark("target opened", _transition(FIRST, "open")),
        ),
        least_seconds=4,
        most_seconds=15,
    ),
    Chapter(
        key="shed",
        title="A second target fills: too many to eject, so the tier sheds",
        told=f"Target {SECOND!r} plays the same pages; a guard keeps it in, at a lower rate.",
        act=_second_full,
        marks=(
            Mark("guard", _transition(SECOND, "suppressed")),
            Mark("tier shed", _shedding),
            Mark("503 with Retry-After", _client_shed),
            Mark("others still served", _client_answered),
        ),
        least_seconds=6,
        most_seconds=20,
    ),
    Chapter(
        key="recovery",
        title="The load goes, and traffic comes back by steps",
        told="Both targets play normal pages again.",
        act=_all_normal,
        marks=(
            Mark("half open", _transition(FIRST, "half_open")),
            Mark("target closed", _closed_again),
            Mark("tier admits everything", _admitting),
        ),
        least_seconds=4,
        most_seconds=45,
    ),
)
