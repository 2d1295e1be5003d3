"""The canary: fixed prompts, one token each, compared with the first answers of the same model.

Changed weights do not show in the traffic's own logprobs; asked the same questions they do. Under
load nothing is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from collector.sources.names import digest
from collector.sources.protocols import Place, ScrapeStats, Source, Tools
from collector.sources.server.asking import Asking, server_base
from collector.sources.server.calm import busy
from collector.sources.server.canary_answers import AnswersError, Reference, divergence_nats
from collector.sources.server.canary_prompts import PROMPTS
from collector.sources.server.changes import another_server, is_exact
from collector.sources.server.generating import MOST_TOP, Api, Came, Generator
from collector.values import Seconds
from detectors.records import Absence, Identity, Reading
from detectors.remarks import Finding, Noticed

KIND: Final = "canary"
SIGNAL: Final = "canary_divergence_nats"
_LOGPROB_DIGITS: Final = 1  # of the hash by which answers are told apart


class CanaryConfig(BaseModel):
    """Fixed one-token prompts whose answers tell when the weights have changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["canary"] = "canary"
    interval: Seconds = Field(default=300.0, description="Time between rounds.")
    prompts: int = Field(default=24, ge=20, le=len(PROMPTS), description="Prompts of a round.")
    timeout: Seconds = Field(default=10.0, description="Longest wait for one answer.")
    api: Api = Field(
        default="auto",
        description="Which route is asked: `completions`, `chat`, `generate` (TGI); `auto` tries.",
    )
    model: str = Field(
        default="", max_length=512, description="Model to ask for; the first listed if empty."
    )
    floor_factor: float = Field(
        default=3.0, ge=1, description="Times the noise of a repeat that is still no change."
    )
    least_nats: float = Field(
        default=1e-3, gt=0, description="A smaller divergence is no change, however calm the noise."
    )
    accept: str = Field(
        default="",
        max_length=128,
        description="Any label; another one takes the present answers as the new reference.",
    )

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        return CanarySource(self, place, tools)


@dataclass(frozen=True, slots=True)
class _Round:
    """One round: all answers, or what ended it."""

    came: Came
    answers: tuple[Mapping[str, float], ...] = ()
    problem: str = ""


class CanarySource:
    """Asks one target. `save` and `load` carry the reference over a restart of Fusewire."""

    def __init__(self, config: CanaryConfig, place: Place, tools: Tools) -> None:
        self.name = f"{KIND}:{place.tier}/{place.target}"
        self.reference: Reference | None = None
        self._config = config
        self._place = place
        self._tools = tools
        asking = Asking(tools.client, server_base(place.url), place.headers, config.timeout)
        self._generator = Generator(asking, api=config.api, model=config.model)
        self._prompts = PROMPTS[: config.prompts]
        self._noticed: Reading | None = None
        self._outcomes: Counter[str] = Counter()

    def notice(self, reading: Reading) -> None:
        """Take the newest scrape of the target's page: its load, and which model it is."""
        self._noticed = reading
        self._generator.engine = reading.identity.engine or self._generator.engine

    def save(self) -> bytes:
        """Return the reference as bytes, empty while there is none."""
        return self.reference.save() if self.reference else b""

    def load(self, data: bytes) -> None:
        """Take over what `save` wrote.

        Raises:
            AnswersError: If it is no reference; nothing is changed.
        """
        if data:
            self.reference = Reference.load(data)

    async def read(self) -> Reading:
        """Make a round and compare; trouble is in the reading, never raised."""
        started = self._tools.monotonic()
        done = await self._round()
        if done.came != "answered":
            self._outcomes[done.came] += 1
            return self._without(done, started)
        try:
            return await self._compared(done, started)
        except AnswersError as error:
            self._outcomes["unusable"] += 1
            return self._without(_Round("refused", problem=str(error)), started)

    def stats(self) -> ScrapeStats:
        return ScrapeStats(outcomes=dict(self._outcomes))

    async def close(self) -> None:
        """Hold nothing open: the client is shared."""

    async def _round(self) -> _Round:
        """Ask every prompt, one after the other, as long as the engine has room."""
        answers: list[Mapping[str, float]] = []
        for prompt in self._prompts:
            reason = busy(self._noticed)
            if reason:
                return _Round("busy", problem=reason)
            found = await self._generator.ask(prompt, top=MOST_TOP)
            if found.came != "answered":
                return _Round(found.came, problem=found.problem)
            if not found.tokens:
                return _Round("refused", problem="it gives no logprobs")
            answers.append(found.tokens)
        return _Round("answered", tuple(answers))

    async def _compared(self, done: _Round, started: float) -> Reading:
        """Compare a round with the reference; a first one becomes it. May raise AnswersError."""
        reference = self._usable_reference()
        if reference is None:
            return await self._first(done, started)
        limit = self._limit(reference)
        nats = divergence_nats(reference.answers, done.answers)
        if nats > limit:  # a moment's noise does not come twice
            again = await self._round()
            if again.came != "answered":
                self._outcomes[again.came] += 1
                return self._without(again, started)
            nats = min(nats, divergence_nats(reference.answers, again.answers))
        noticed: tuple[Noticed, ...] = ()
        if nats > limit and not reference.changed:
            noticed = (Noticed("weights", _hash(reference.answers), _hash(done.answers)),)
        self.reference = replace(reference, changed=nats > limit)
        self._outcomes["changed" if nats > limit else "same"] += 1
        return self._reading(started, nats=nats, noticed=noticed)

    def _usable_reference(self) -> Reference | None:
        """Return the reference if it is of what answers now, with the surest identity known."""
        reference, now = self.reference, self._identity()
        if reference is None or reference.key != self._key():
            return None
        if another_server(reference.identity, now):
            return None
        return replace(reference, identity=now) if is_exact(now.version) else reference

    async def _first(self, done: _Round, started: float) -> Reading:
        """Take a round as the reference, with the noise that a repeat of it shows."""
        again = await self._round()
        if again.came != "answered":
            self._outcomes[again.came] += 1
            return self._without(again, started)
        floor = divergence_nats(done.answers, again.answers)
        self.reference = Reference(self._key(), self._identity(), done.answers, floor)
        self._outcomes["reference"] += 1
        return self._reading(started, nats=floor)

    def _limit(self, reference: Reference) -> float:
        config = self._config
        return max(config.floor_factor * reference.floor_nats, config.least_nats)

    def _identity(self) -> Identity:
        return self._noticed.identity if self._noticed else Identity()

    def _key(self) -> str:
        """Return how is asked; answers to other questions are not compared."""
        asked = [self._generator.form, self._generator.most_top, self._config.model]
        return digest([asked, self._config.accept, list(self._prompts)])

    def _without(self, done: _Round, started: float) -> Reading:
        """Return a reading of a round that came to no number."""
        why = Absence.UNUSABLE if done.came == "refused" else Absence.SCRAPE_FAILED
        problem = f"the canary was not answered: {done.problem}" if done.came == "failed" else ""
        findings: tuple[Finding, ...] = ()
        if done.came == "refused":
            text = f"the canary cannot be asked: {done.problem}; set its `api` and `model`"
            findings = (Finding("canary_refused", SIGNAL, text),)
        if done.came == "busy":
            why = Absence.SKIPPED
        return self._reading(started, why=why, problem=problem, findings=findings)

    def _reading(
        self,
        started: float,
        *,
        nats: float | None = None,
        why: Absence = Absence.NO_DATA,
        problem: str = "",
        findings: tuple[Finding, ...] = (),
        noticed: tuple[Noticed, ...] = (),
    ) -> Reading:
        ended = self._tools.monotonic()
        values = {"up": float(not problem), "scrape_seconds": ended - started}
        if nats is not None:
            values[SIGNAL] = nats
        return Reading(
            tier=self._place.tier,
            target=self._place.target,
            source=KIND,
            at=self._tools.now(),
            monotonic_seconds=ended,
            scrape_seconds=ended - started,
            values=values,
            absent={} if nats is not None else {SIGNAL: why},
            problem=problem,
            findings=(*findings, *self._change(nats)),
            noticed=noticed,
        )

    def _change(self, nats: float | None) -> tuple[Finding, ...]:
        """Return the finding that the answers have changed, as long as nothing says otherwise."""
        if self.reference is None or not self.reference.changed:
            return ()
        seen = "the last round" if nats is None else f"{nats:.3g} nats"
        text = (
            f"the canary's answers differ from the first ones ({seen}, limit "
            f"{self._limit(self.reference):.3g}): other weights, precision or kernels; if that was "
            "intended, set the canary's `accept` to a new label"
        )
        return (Finding("canary_diverged", SIGNAL, text),)


def _hash(answers: tuple[Mapping[str, float], ...]) -> str:
    rounded = [{it: round(row[it], _LOGPROB_DIGITS) for it in sorted(row)} for row in answers]
    return digest(rounded)
