"""Joins the lines of two files as they are read, holding no more than what waits for its partner.

Both files are read in step, so that files in one order need next to no memory. Lines are joined
by one kind of key, the strongest that both files share: an id, the gateway's or client's request
id, or the request's text.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice, zip_longest

import msgspec

from collector.shadow.records import MEBIBYTE, LineProblemError, RawLine, ReadLimits, Refusal
from collector.shadow.shapes import KeyLine

_DIGEST_BYTES = 16
_BYTES_PER_PART = 24  # engines' own need 60


class KeyKind(StrEnum):
    """What lines are joined by, strongest first."""

    ID = "id"
    REQUEST_ID = "request_id"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Keyed:
    """A line and what it can be joined by."""

    line: RawLine
    keys: dict[KeyKind, bytes]


class KeyReader:
    """Reads the keys of lines with a decoder that is made once."""

    def __init__(self) -> None:
        self._line = msgspec.json.Decoder(KeyLine)
        self._encoder = msgspec.json.Encoder(order="sorted")

    def read(self, line: RawLine) -> Keyed:
        """Return a line with its keys.

        Raises:
            LineProblemError: If it is too long or no JSON object.
        """
        if line.oversized or _dense(line.data):
            raise LineProblemError(
                Refusal.OVERSIZED, "longer, or of more parts, than a line may be"
            )
        try:
            found = self._line.decode(line.data)
        except (msgspec.DecodeError, RecursionError) as error:
            msg = "not a JSON object with members as expected"
            raise LineProblemError(Refusal.MALFORMED, msg) from error
        return Keyed(line, dict(self._keys(found)))

    def _keys(self, line: KeyLine) -> Iterator[tuple[KeyKind, bytes]]:
        own = line.id if line.id is not None else line.i
        if own is not None:
            yield KeyKind.ID, _digest(str(own).encode("utf-8", "replace"))
        sent = (line.x_request_id_header, line.x_request_id, line.request_id, line.custom_id)
        known = [one for one in sent if one is not None]
        if known:
            yield KeyKind.REQUEST_ID, _digest(str(known[0]).encode("utf-8", "replace"))
        request = line.request
        if request is not None:
            text = (
                request.prompt if request.prompt is not None else request.inputs,
                request.messages,
                request.input,
                request.instructions,
            )
        else:
            text = (line.prompt, None, None, None)
        if any(part is not None for part in text):
            yield KeyKind.TEXT, _digest(self._encoder.encode(text))


def _dense(data: bytes) -> bool:
    """Tell a large line of next to nothing but brackets: each would be an object in memory."""
    parts = data.count(b"{") + data.count(b"[") if len(data) > MEBIBYTE else 0
    return parts * _BYTES_PER_PART > len(data)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two lines of one key, production's first; `same_request` is None where that is not told."""

    reference: RawLine
    candidate: RawLine
    same_request: bool | None


def _pair(reference: Keyed, candidate: Keyed) -> Pair:
    texts = [one.keys.get(KeyKind.TEXT) for one in (reference, candidate)]
    return Pair(reference.line, candidate.line, None if None in texts else texts[0] == texts[1])


@dataclass
class SideCounts:
    """What became of the lines of one file: `refused` by reason, the first few with their line."""

    lines: int = 0
    joined: int = 0
    left_over: int = 0
    dropped: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    examples: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, number: int, error: LineProblemError) -> None:
        """Count a line that cannot be used; the first few are told by number."""
        self.refused[error.reason] += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append((number, str(error)))


MOST_EXAMPLES = 5


@dataclass
class _Waiting:
    """The lines of one file that have no partner yet, oldest first."""

    lines: OrderedDict[bytes, deque[Keyed]] = field(default_factory=OrderedDict)
    count: int = 0
    size: int = 0

    def put(self, key: bytes, line: Keyed) -> None:
        self.lines.setdefault(key, deque()).append(line)
        self.count += 1
        self.size += len(line.line.data)

    def take(self, key: bytes) -> Keyed | None:
        queue = self.lines.get(key)
        if queue is None:
            return None
        line = queue.popleft()
        if not queue:
            del self.lines[key]
        self.count -= 1
        self.size -= len(line.line.data)
        return line


class Join:
    """Joins two streams of lines; `kind` and the counts are final when all pairs were taken."""

    def __init__(
        self, reference: Iterator[RawLine], candidate: Iterator[RawLine], limits: ReadLimits
    ) -> None:
        self._streams = (reference, candidate)
        self._limits = limits
        self._reader = KeyReader()
        self._waiting = (_Waiting(), _Waiting())
        self.counts = (SideCounts(), SideCounts())
        self.kind = KeyKind.ID

    def pairs(self) -> Iterator[Pair]:
        """Yield the pairs as their second line is read."""
        keyed = [self._keyed(side) for side in (0, 1)]
        samples = [self._sample(stream) for stream in keyed]
        self.kind = _kind_of(*samples)
        streams = [chain(sample, rest) for sample, rest in zip(samples, keyed, strict=True)]
        for row in zip_longest(*streams):
            for side, line in enumerate(row):
                if line is not None:
                    yield from self._offer(side, line)
        for side in (0, 1):
            self.counts[side].left_over = self._waiting[side].count

    def _keyed(self, side: int) -> Iterator[Keyed]:
        counts = self.counts[side]
        for line in self._streams[side]:
            counts.lines += 1
            try:
                yield self._reader.read(line)
            except LineProblemError as error:
                counts.refuse(line.number, error)

    def _sample(self, stream: Iterator[Keyed]) -> list[Keyed]:
        """Take the first lines, to see what they can be joined by."""
        sample: list[Keyed] = []
        size = 0
        for line in islice(stream, self._limits.sample_lines):
            sample.append(line)
            size += len(line.line.data)
            if size >= self._limits.sample_bytes:
                break
        return sample

    def _offer(self, side: int, keyed: Keyed) -> Iterator[Pair]:
        counts, line = self.counts[side], keyed.line
        key = keyed.keys.get(self.kind)
        if key is None:
            msg = f"nothing to join by: no {self.kind.value.replace('_', ' ')}"
            counts.refuse(line.number, LineProblemError(Refusal.NO_KEY, msg))
            return
        partner = self._waiting[1 - side].take(key)
        if partner is not None:
            for one in self.counts:
                one.joined += 1
            yield _pair(partner, keyed) if side else _pair(keyed, partner)
            return
        if self.kind is not KeyKind.TEXT and key in self._waiting[side].lines:
            msg = "an id that an earlier line of the file has"
            counts.refuse(line.number, LineProblemError(Refusal.TWICE, msg))
            return
        self._waiting[side].put(key, keyed)
        self._drop()

    def _drop(self) -> None:
        """Let go of the oldest lines that wait while there are too many."""
        first, second = self._waiting
        while (
            first.count + second.count > self._limits.waiting_lines
            or first.size + second.size > self._limits.waiting_bytes
        ):
            side = 0 if first.size >= second.size else 1
            fuller = self._waiting[side]
            fuller.take(next(iter(fuller.lines)))
            self.counts[side].dropped += 1


def _kind_of(reference: list[Keyed], candidate: list[Keyed]) -> KeyKind:
    """Return the strongest kind of key by which about as many lines meet as by any.

    Without any meeting (files in another order) it is the strongest that most lines of both have.
    """
    meetings = {
        kind: len(_known(reference, kind).keys() & _known(candidate, kind).keys())
        for kind in KeyKind
    }
    most = max(meetings.values())
    if most:
        return next(kind for kind in KeyKind if 2 * meetings[kind] >= most)
    for kind in KeyKind:
        sides = ((_known(side, kind).total(), len(side)) for side in (reference, candidate))
        if all(2 * known > lines for known, lines in sides):
            return kind
    return KeyKind.ID


def _known(sample: list[Keyed], kind: KeyKind) -> Counter[bytes]:
    return Counter(one.keys[kind] for one in sample if kind in one.keys)
