"""The output side: what an engine answered, from any shape of body or stream, as flat lists.

One `Reply` is a whole body or one chunk; both are absorbed the same way, so a streamed answer and
the same answer in one piece give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from collector.ingest.prompts import text_of
from collector.ingest.records import LineError, Reason
from collector.ingest.shapes import (
    Choice,
    Logprobs,
    PromptPositions,
    Reply,
    TgiDetails,
    TgiToken,
    TokenEntry,
)

MOST_LISTED = 64  # of a position; more (`logprobs: -1`) add nothing that the bounds need


class Listing(StrEnum):
    """How the list of candidates of a position was made."""

    NONE = "none"
    CHAT = "chat"  # k entries, the sampled token always one of them
    COMPLETIONS = "completions"  # the k largest, and the sampled token where it is not one of them
    TGI = "tgi"  # the k largest, the sampled token apart


class Answer(msgspec.Struct, gc=False):  # made for every line: a tenth of a dataclass's time
    """One choice, being put together. Position lists run in parallel.

    `top` holds the candidates of all positions end to end, `counts` how many each position has.
    """

    listing: Listing = Listing.NONE
    texts: list[str] = []
    tokens: list[str] = []
    sampled: list[float | None] = []
    top: list[float | None] = []
    counts: list[int] = []
    offsets: list[int] = []
    finish: str = ""
    generated_tokens: float | None = None
    input_tokens: float | None = None
    scored: list[float | None] | None = None  # logprobs of the prompt's tokens, one a token
    positions: PromptPositions | None = None
    prompt_ids: list[int] | None = None


class Spoken(msgspec.Struct, gc=False):
    """All that a reply says: answers by index, and what holds for all of them."""

    answers: dict[int, Answer] = {}
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    created: float | None = None
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    model: str = ""
    fingerprint: str = ""
    positions: PromptPositions | None = None
    prompt_ids: list[int] | None = None

    def answer(self, index: int) -> Answer:
        found = self.answers.get(index)
        if found is None:
            found = self.answers[index] = Answer()
        return found


def read_reply(chunks: Iterable[Reply], *, most: int) -> Spoken:
    """Put together what an engine answered, at most `most` choices of it.

    Raises:
        LineError: With reason `engine_error` for an error body or an error event in a stream,
            `too_many_choices`, and `no_answer` if there is no answer in it.
    """
    spoken = Spoken()
    for reply in chunks:
        _check_error(reply)
        if len(reply.choices or ()) > most:
            raise _too_many(most)
        _absorb(spoken, reply)
        if len(spoken.answers) > most:
            raise _too_many(most)
    if not spoken.answers:
        msg = "no answer in the response: expected choices, output, details or generated_text"
        raise LineError(Reason.NO_ANSWER, msg)
    return spoken


def _too_many(most: int) -> LineError:
    return LineError(Reason.TOO_MANY_CHOICES, f"expected at most {most} choices in one response")


def _check_error(reply: Reply) -> None:
    kind = ""
    if reply.object == "error":
        kind = "flat"
    elif reply.error is not msgspec.UNSET and bytes(reply.error) != b"null":
        kind = "nested"
    elif reply.detail is not msgspec.UNSET and not reply.choices:
        kind = "detail"
    if kind:
        msg = f"the response is an error of the engine ({kind} form), not a generation"
        raise LineError(Reason.ENGINE_ERROR, msg)


def _absorb(spoken: Spoken, reply: Reply) -> None:
    if reply.choices:
        for choice in reply.choices:
            _absorb_choice(spoken.answer(choice.index), choice)
    elif reply.output is not None:
        _absorb_output(spoken.answer(0), reply)
    elif reply.token is not None or reply.details is not None or reply.generated_text is not None:
        _absorb_tgi(spoken.answer(0), reply)
    if reply.usage is not None:
        usage = reply.usage
        given = usage.prompt_tokens if usage.prompt_tokens is not None else usage.input_tokens
        made = usage.completion_tokens
        spoken.prompt_tokens = given
        spoken.completion_tokens = made if made is not None else usage.output_tokens
    spoken.created = reply.created or reply.created_at or spoken.created
    if spoken.id is msgspec.UNSET:
        spoken.id = reply.id
    spoken.model = reply.model or spoken.model
    spoken.fingerprint = reply.system_fingerprint or spoken.fingerprint
    spoken.positions = reply.prompt_logprobs or spoken.positions
    spoken.prompt_ids = reply.prompt_token_ids or spoken.prompt_ids


def _absorb_choice(answer: Answer, choice: Choice) -> None:
    message = choice.message or choice.delta
    if choice.text:
        answer.texts.append(choice.text)
    if message is not None and message.content:
        answer.texts.append(text_of(message.content))
    if choice.finish_reason:
        answer.finish = choice.finish_reason
    answer.positions = choice.prompt_logprobs or answer.positions
    answer.prompt_ids = choice.prompt_token_ids or answer.prompt_ids
    logprobs = choice.logprobs
    if logprobs is None:
        return
    if logprobs.content is not None:
        _absorb_entries(answer, logprobs.content)
    elif logprobs.token_logprobs is not None:
        _absorb_lists(answer, logprobs, logprobs.token_logprobs)


def _absorb_entries(answer: Answer, entries: list[TokenEntry]) -> None:
    """Take the positions of chat and Responses."""
    answer.listing = Listing.CHAT
    answer.tokens += [entry.token for entry in entries if entry.token is not None]
    answer.sampled += [entry.logprob for entry in entries]
    lists = [entry.top_logprobs or [] for entry in entries]
    counts = list(map(len, lists))
    if max(counts, default=0) > MOST_LISTED:
        lists = [candidates[:MOST_LISTED] for candidates in lists]
        counts = list(map(len, lists))
    answer.top += [candidate.logprob for candidates in lists for candidate in candidates]
    answer.counts += counts


def _absorb_lists(answer: Answer, logprobs: Logprobs, sampled: list[float | None]) -> None:
    """Take the parallel lists of completions; positions without a list of candidates get none."""
    answer.listing = Listing.COMPLETIONS
    tokens = logprobs.tokens or []
    if tokens and len(tokens) != len(sampled):
        msg = f"{len(tokens)} tokens and {len(sampled)} token_logprobs: expected as many of each"
        raise LineError(Reason.MALFORMED, msg)
    answer.tokens += tokens
    answer.sampled += sampled
    answer.offsets += logprobs.text_offset or []
    maps = (logprobs.top_logprobs or [])[: len(sampled)]
    lists = [list(candidates.values())[:MOST_LISTED] if candidates else [] for candidates in maps]
    answer.top += [value for values in lists for value in values]
    answer.counts += [len(values) for values in lists]
    answer.counts += [0] * (len(sampled) - len(maps))


def _absorb_output(answer: Answer, reply: Reply) -> None:
    """Take a body of the Responses API."""
    for item in reply.output or ():
        for part in item.content or ():
            if part.text:
                answer.texts.append(part.text)
            if part.logprobs is not None:
                _absorb_entries(answer, part.logprobs)
    reason = reply.incomplete_details.reason if reply.incomplete_details else None
    if reason is not None:
        answer.finish = "length" if reason == "max_output_tokens" else reason
    elif reply.status == "completed":
        answer.finish = "stop"


def _absorb_tgi(answer: Answer, reply: Reply) -> None:
    """Take a body or a stream event of TGI."""
    if reply.generated_text is not None:
        answer.texts = [reply.generated_text]
    if reply.token is not None:
        tops = None if reply.top_tokens is None else [reply.top_tokens]
        _absorb_tgi_tokens(answer, [reply.token], tops)
    if reply.details is not None:
        _absorb_details(answer, reply.details)


def _absorb_details(answer: Answer, details: TgiDetails) -> None:
    answer.finish = details.finish_reason or answer.finish
    answer.generated_tokens = details.generated_tokens
    answer.input_tokens = details.input_length
    if details.prefill:
        answer.scored = [token.logprob for token in details.prefill]
    if details.tokens:
        _absorb_tgi_tokens(answer, details.tokens, details.top_tokens)


def _absorb_tgi_tokens(
    answer: Answer, tokens: list[TgiToken], tops: list[list[TgiToken]] | None
) -> None:
    """Take positions of TGI, without special tokens: other engines leave those out."""
    answer.listing = Listing.TGI
    for place, token in enumerate(tokens):
        if token.special:
            continue
        answer.tokens.append(token.text)
        answer.sampled.append(token.logprob)
        candidates = tops[place][:MOST_LISTED] if tops and place < len(tops) else []
        answer.top += [candidate.logprob for candidate in candidates]
        answer.counts.append(len(candidates))
