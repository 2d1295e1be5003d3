"""One line to its tokens and logprobs, from every shape of answer that tells both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from collector.shadow.prompt_maps import scored_prompt
from collector.shadow.records import LineProblemError, Refusal, Scored, Sequenced
from collector.shadow.sequences import Listed, sequenced
from collector.shadow.shapes import (
    Body,
    Choice,
    Entry,
    Lists,
    OutputItem,
    ScoredLine,
    SentRequest,
    TgiDetails,
)

_LOWEST_ERROR_STATUS = 400
_STOPPED = frozenset({"stop", "eos_token", "stop_sequence"})


class ScoreReader:
    """Reads lines with decoders that are made once."""

    def __init__(self) -> None:
        self._line = msgspec.json.Decoder(ScoredLine)
        self._body = msgspec.json.Decoder(Body)

    def read(self, data: bytes) -> Scored:
        """Return the tokens of a line; of several choices the first.

        Raises:
            LineProblemError: If it has no token with a logprob, or is no such line.
        """
        try:
            line = self._line.decode(data)
            bodies = self._bodies(line.response)
        except (msgspec.DecodeError, RecursionError) as error:
            msg = "no line to compare: expected request and response, or tokens and token_logprobs"
            raise LineProblemError(Refusal.MALFORMED, msg) from error
        if line.status is not None and line.status >= _LOWEST_ERROR_STATUS:
            raise _engine_error()
        if line.token_logprobs is not None:
            lists = Lists(
                tokens=line.tokens,
                token_logprobs=line.token_logprobs,
                top_logprobs=line.top_logprobs,
            )
            found = Scored(None, _of_lists(lists, asked=None))
        else:
            found = _of_bodies(line.request, bodies)
        _check_some(found)
        return replace(found, mode=line.logprobs_mode or "", temperature=line.request.temperature)

    def _bodies(self, response: Body | list[Body] | str | None) -> Sequence[Body]:
        if response is None:
            return ()
        if isinstance(response, Body):
            return (response,)
        if not isinstance(response, str):
            return response
        if response.lstrip()[:1] == "{":
            return (self._body.decode(response),)
        events = (event[5:].strip() for event in response.split("\n") if event[:5] == "data:")
        return [self._body.decode(event) for event in events if event not in {"", "[DONE]"}]


def _is_error(body: Body) -> bool:
    told = body.error is not msgspec.UNSET and bytes(body.error) != b"null"
    return told or body.object == "error"


def _engine_error() -> LineProblemError:
    return LineProblemError(Refusal.ENGINE_ERROR, "the response is an error of the engine")


def _check_some(found: Scored) -> None:
    sides = [side for side in (found.generated, found.prompt) if side is not None]
    if not any(np.isfinite(side.logprobs).any() for side in sides):
        msg = "no token with a logprob: log with logprobs, or score with prompt_logprobs or echo"
        raise LineProblemError(Refusal.NO_LOGPROBS, msg)


def _of_bodies(request: SentRequest, bodies: Sequence[Body]) -> Scored:
    """Put together the first choice of a response, streamed or not."""
    answer = _Answer()
    for body in bodies:
        if _is_error(body):
            raise _engine_error()
        if body.details is not None:
            answer.take_tgi(body, body.details)
        for choice in body.choices or ():
            if choice.index == 0:
                answer.take_choice(choice, body, request)
        for item in body.output or ():
            answer.take_output(item, body)
    generated = _joined(answer.parts)
    stopped = answer.finish in _STOPPED
    if request.echo and generated is not None:
        return _split_echo(generated, bodies, stopped=stopped)
    return Scored(generated, answer.prompt, stopped=stopped, text_digest=answer.digest())


@dataclass
class _Answer:
    """A response, being put together."""

    parts: list[Sequenced] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    prompt: Sequenced | None = None
    finish: str = ""

    def take_choice(self, choice: Choice, body: Body, request: SentRequest) -> None:
        self.parts += _of_choice(choice, request)
        self.finish = choice.finish_reason or self.finish
        message = choice.message or choice.delta
        content = choice.text if message is None else message.content
        self.texts += [content] if isinstance(content, str) else []
        maps = choice.prompt_logprobs or body.prompt_logprobs
        if maps:
            ids = choice.prompt_token_ids or body.prompt_token_ids
            self.prompt = scored_prompt(maps, request.prompt_logprobs, ids)

    def take_tgi(self, body: Body, details: TgiDetails) -> None:
        found, self.prompt = _of_tgi(details)
        self.parts.append(found)
        self.finish = details.finish_reason or self.finish
        self.texts += [body.generated_text] if body.generated_text is not None else []

    def take_output(self, item: OutputItem, body: Body) -> None:
        self.finish = "stop" if body.status == "completed" else self.finish
        for part in item.content or ():
            self.texts += [part.text] if part.text is not None else []
            self.parts += [_of_entries(part.logprobs)] if part.logprobs else []

    def digest(self) -> bytes:
        """Return a hash of the text, empty if there was none."""
        text = "".join(self.texts).encode("utf-8", "replace")
        return hashlib.blake2b(text, digest_size=16).digest() if self.texts else b""


def _of_choice(choice: Choice, request: SentRequest) -> list[Sequenced]:
    logprobs = choice.logprobs
    if logprobs is None:
        return []
    if logprobs.content is not None:
        found = _of_entries(logprobs.content)
    elif logprobs.token_logprobs is not None:
        asked = request.logprobs if isinstance(request.logprobs, int) else None
        found = _of_lists(logprobs, asked=None if isinstance(asked, bool) else asked)
    else:
        return []
    ids = choice.token_ids
    return [replace(found, ids=ids)] if ids and len(ids) == len(found) else [found]


def _of_entries(entries: list[Entry]) -> Sequenced:
    """Read chat: each list has k entries, and the sampled token replaces the last if it must."""
    labels = [entry.token for entry in entries if entry.token is not None]
    if len(labels) < len(entries):
        msg = (
            "logprobs of tokens that are not named: nothing tells whether both sides mean the same"
        )
        raise LineProblemError(Refusal.NO_LOGPROBS, msg)
    lists = [
        Listed(_by_label(_pairs(entry.top_logprobs or ())), spare=1 if entry.top_logprobs else 0)
        for entry in entries
    ]
    return sequenced(labels, [entry.logprob for entry in entries], lists)


def _pairs(entries: Iterable[Entry]) -> list[tuple[str, float | None]]:
    return [(entry.token or "", entry.logprob) for entry in entries]


def _by_label(pairs: Iterable[tuple[str, float | None]]) -> dict[str, float | None]:
    """Return candidates by label; two of one label (broken bytes) cannot be told apart: null."""
    found: dict[str, float | None] = {}
    for label, value in pairs:
        found[label] = None if label in found else value
    return found


def _of_lists(lists: Lists, *, asked: int | None) -> Sequenced:
    """Read completions: the k largest, and the sampled token where it is not one of them."""
    values = lists.token_logprobs or []
    labels = lists.tokens or []
    if len(labels) != len(values):
        msg = f"{len(labels)} tokens and {len(values)} token_logprobs: expected as many of each"
        raise LineProblemError(Refusal.MALFORMED, msg)
    maps: list[Mapping[str, float | None]] = [one or {} for one in lists.top_logprobs or ()]
    maps = (maps + [{}] * len(values))[: len(values)]
    k = max(map(len, maps), default=0) - 1 if asked is None else asked
    found = [Listed(one, own=label, k=k) for one, label in zip(maps, labels, strict=True)]
    return sequenced(labels, values, found)


def _of_tgi(details: TgiDetails) -> tuple[Sequenced, Sequenced | None]:
    """Read TGI, without special tokens: other engines leave those out."""
    tokens = details.tokens or []
    tops = details.top_tokens or []
    lists = [
        Listed(_by_label((one.text, one.logprob) for one in tops[place]))
        if place < len(tops)
        else Listed({})
        for place in range(len(tokens))
    ]
    kept = [place for place, token in enumerate(tokens) if not token.special]
    found = sequenced(
        [tokens[place].text for place in kept],
        [tokens[place].logprob for place in kept],
        [lists[place] for place in kept],
    )
    prefill = details.prefill or []
    prompt = sequenced([one.text for one in prefill], [one.logprob for one in prefill], None)
    return found, prompt if prefill else None


def _joined(parts: list[Sequenced]) -> Sequenced | None:
    """Join the pieces of a stream."""
    if len(parts) < 2:  # noqa: PLR2004  # one piece needs no joining
        return parts[0] if parts else None
    known = [part.ids for part in parts if part.ids is not None]
    return Sequenced(
        labels=[label for part in parts for label in part.labels],
        ids=[one for ids in known for one in ids] if len(known) == len(parts) else None,
        logprobs=np.concatenate([part.logprobs for part in parts]),
        clamped=np.concatenate([part.clamped for part in parts]),
        tops=[top for part in parts for top in part.tops],
        k=max(part.k for part in parts),
    )


def _split_echo(whole: Sequenced, bodies: Sequence[Body], *, stopped: bool) -> Scored:
    """Part an echoed prompt from the answer; without usage all of it is taken for scored text."""
    counts = [body.usage.prompt_tokens for body in bodies if body.usage is not None]
    known = [count for count in counts if count is not None and 0 <= count <= len(whole)]
    cut = known[-1] if known else len(whole)
    after = whole.cut(cut, len(whole)) if cut < len(whole) else None
    return Scored(after, whole.cut(0, cut), stopped=stopped)
