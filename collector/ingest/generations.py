"""One line to generations: numbers of its two sides, and the answers' positions as flat lists."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from collector.ingest.answers import read_reply
from collector.ingest.identity import (
    Place,
    id_of,
    place_of,
    sample_ratio,
    time_of,
    variant_of,
)
from collector.ingest.prompts import prompts_of
from collector.ingest.records import Defaults, Limits, LineError, Missing, Reason
from collector.ingest.scores import split_echo
from collector.ingest.shapes import Line, Reply, SizeLine
from collector.ingest.sides import (
    INPUT_SIGNALS,
    NAN,
    NO_CANDIDATES,
    NO_INPUTS,
    OUTPUT_SIGNALS,
    Candidates,
    Turn,
    asked_for,
    candidates_of,
    first_known,
    input_values,
    output_values,
    prompt_tokens,
)
from detectors.entropy import TYPICAL_VOCABULARY

# The order of `Generation.values`: signals, and last what `output_looping` is made of.
VALUE_SIGNALS = (*INPUT_SIGNALS, *OUTPUT_SIGNALS)
LOOP_WINDOW = len(VALUE_SIGNALS)
_LOWEST_ERROR_STATUS = 400


class Generation(msgspec.Struct, frozen=True, gc=False):
    """One answer of one line, text already dropped. `values` are in the order of `VALUE_SIGNALS`.

    `sampled` and `top` are as in `Answer`, packed as doubles with NaN for null; `counts` are bytes.
    `at` is unix time. `identity` is a hash of the line's id (0 for none), `ratio` the share that it
    was sampled with, `vocabulary` the number of tokens of the tier's model.
    """

    line: int
    place: Place
    at: float
    values: tuple[float, ...]
    missing: frozenset[Missing]
    sampled: bytes
    top: bytes
    counts: bytes
    candidates: Candidates = NO_CANDIDATES
    identity: int = 0
    ratio: float = 1.0
    vocabulary: int = TYPICAL_VOCABULARY


class LineReader:
    """Reads lines with decoders that are made once."""

    def __init__(self, defaults: Defaults, limits: Limits) -> None:
        self._defaults = defaults
        self._limits = limits
        self._line = msgspec.json.Decoder(Line)
        self._size = msgspec.json.Decoder(SizeLine)
        self._reply = msgspec.json.Decoder(Reply)
        self._taken: set[tuple[str, int]] = set()  # the ids of a body, by tier
        self.repeated = 0  # answers of lines whose id came before in the body

    def read(self, number: int, data: bytes | memoryview) -> list[Generation]:
        """Return the generations of a line: one a choice.

        What belongs to a request (prompt, parameters, latency) is given to the first answer of
        each prompt only, so that ``n: 3`` counts its prompt once.

        Raises:
            LineError: If nothing of the line can be taken.
        """
        try:
            line = self._line.decode(data)
            chunks = self._chunks(line.response)
        except (msgspec.DecodeError, RecursionError) as error:
            msg = f"not a line of logged generations: {error}"
            raise LineError(Reason.MALFORMED, msg) from error
        if line.status is not None and line.status >= _LOWEST_ERROR_STATUS:
            msg = "the response has the status of an error: not a generation"
            raise LineError(Reason.ENGINE_ERROR, msg)
        spoken = read_reply(chunks, most=self._limits.max_choices)
        turn = Turn(line, spoken, prompts_of(line.request))
        return self._generations(number, turn)

    def size_only(self, number: int, data: bytes | memoryview) -> list[Generation]:
        """Return what is cheaply known of a line that is too long: the size of its prompt."""
        try:
            line = self._size.decode(data)
            place, missing = place_of(line, _size_variant(line), self._defaults)
        except (msgspec.DecodeError, RecursionError, LineError):
            return []
        texts = [prompt.text for prompt in prompts_of(line.request) if prompt.text is not None]
        usage = line.response.usage
        values = [NAN] * (len(VALUE_SIGNALS) + 1)
        if texts:
            values[VALUE_SIGNALS.index("prompt_chars")] = float(sum(map(len, texts)))
        if usage is not None:
            given = first_known(usage.prompt_tokens, usage.input_tokens)
            values[VALUE_SIGNALS.index("prompt_tokens")] = given
        identity = id_of(line, line.response.id)
        if self._repeats(place, identity, answers=1):
            return []
        at, _ = time_of(line.at, None, self._defaults, self._limits)
        ratio = sample_ratio(line, missing)
        lacking = frozenset({*missing, Missing.ONLY_PROMPT_SIZE})
        found = Generation(number, place, at, tuple(values), lacking, b"", b"", b"")
        return [msgspec.structs.replace(found, identity=identity, ratio=ratio)]

    def _repeats(self, place: Place, identity: int, *, answers: int) -> bool:
        """Whether a line of this id came before in the body; takes the id, counts what repeats."""
        if not identity:
            return False
        key = (place.tier, identity)
        if key in self._taken:
            self.repeated += answers
            return True
        self._taken.add(key)
        return False

    def _chunks(self, response: Reply | list[Reply] | str) -> Sequence[Reply]:
        """Return the response as chunks; a string is a joined event stream, or a body in it."""
        if isinstance(response, Reply):
            return (response,)
        if not isinstance(response, str):
            return response
        if response.lstrip()[:1] == "{":
            return (self._reply.decode(response),)
        events = response.split("\n")  # not splitlines: JSON may hold other line breaks raw
        found = [event[5:].strip() for event in events if event.startswith("data:")]
        if len(found) > self._limits.max_chunks:
            msg = f"a stream of {len(found)} chunks, expected at most {self._limits.max_chunks}"
            raise LineError(Reason.OVERSIZED, msg)
        return [self._reply.decode(event) for event in found if event not in {"", "[DONE]"}]

    def _generations(self, number: int, turn: Turn) -> list[Generation]:
        place, shared = place_of(turn.line, _variant(turn), self._defaults)
        identity = id_of(turn.line, turn.spoken.id)
        if self._repeats(place, identity, answers=len(turn.spoken.answers)):
            return []
        ratio = sample_ratio(turn.line, shared)
        vocabulary = self._defaults.tiers[place.tier].vocabulary_tokens
        at, good_time = time_of(turn.line.at, turn.spoken.created, self._defaults, self._limits)
        if not good_time:
            shared.add(Missing.BAD_TIME)
        found: list[Generation] = []
        owners: set[int] = set()
        for index in sorted(turn.spoken.answers):
            missing = set(shared)
            answer = turn.spoken.answers[index]
            first = turn.owner(index) not in owners
            owners.add(turn.owner(index))
            values = _values(turn, index, missing, first=first)
            found.append(
                Generation(
                    line=number,
                    place=place,
                    at=at,
                    values=values,
                    sampled=_packed(answer.sampled),
                    top=_packed(answer.top),
                    counts=bytes(answer.counts),
                    candidates=candidates_of(answer, turn.line.request, missing),
                    missing=frozenset(missing),
                    identity=identity,
                    ratio=ratio,
                    vocabulary=vocabulary,
                )
            )
        return found


def _packed(values: list[float | None]) -> bytes:
    """Return `values` as doubles, null as NaN: an eighth of the memory, and nothing to collect.

    `struct` takes half the time of `array` and of numpy.
    """
    try:
        return struct.pack(f"{len(values)}d", *values)
    except struct.error:  # of a null, which is rare
        known = (NAN if value is None else value for value in values)
        return struct.pack(f"{len(values)}d", *known)


def _values(turn: Turn, index: int, missing: set[Missing], *, first: bool) -> tuple[float, ...]:
    """Return the values of one answer; an echoed prompt is taken off it before."""
    answer, prompt = turn.spoken.answers[index], turn.prompt(index)
    if turn.line.request.echo and not split_echo(
        answer, prompt, prompt_tokens(turn, answer, prompt)
    ):
        missing.add(Missing.ECHO_UNSPLIT)
    inputs = input_values(turn, answer, prompt, missing) if first else NO_INPUTS
    return (*inputs, *output_values(turn, answer, missing))


def _variant(turn: Turn) -> str:
    line, spoken = turn.line, turn.spoken
    listed = "none"
    scored = [answer.counts for answer in spoken.answers.values() if answer.sampled]
    if scored:
        asked = asked_for(line.request)
        listed = str(asked if asked is not None else max(map(max, scored)))
    return variant_of(
        engine=line.engine or spoken.fingerprint,
        model=spoken.model or line.request.model or "",
        mode=line.logprobs_mode or "",
        listed=listed,
    )


def _size_variant(line: SizeLine) -> str:
    """Return the variant of a line whose answer is not read, from what was asked for."""
    asked = asked_for(line.request)
    unlisted = "0" if line.request.logprobs is True else "none"
    return variant_of(
        engine=line.engine or line.response.system_fingerprint or "",
        model=line.response.model or line.request.model or "",
        mode=line.logprobs_mode or "",
        listed=unlisted if asked is None else str(asked),
    )
