"""What a line to compare looks like on the wire: the members that carry tokens and their logprobs.

The shapes of `collector.ingest` leave out what counting does not need (which token an entry is);
these keep it. Two forms of line: `request` and `response` as logged, and scored text with
`tokens` and `token_logprobs`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class KeyRequest(msgspec.Struct, gc=False):
    """What makes two requests the same text; compared as a hash, never looked into."""

    prompt: Any = None
    messages: Any = None
    inputs: Any = None
    input: Any = None
    instructions: Any = None


class KeyLine(msgspec.Struct, gc=False):
    """What a line can be joined by."""

    id: str | int | None = None
    i: int | None = None
    x_request_id: str | None = None
    x_request_id_header: str | None = msgspec.field(name="x-request-id", default=None)
    request_id: str | int | None = None
    custom_id: str | int | None = None
    request: KeyRequest | None = None
    prompt: Any = None


class Entry(msgspec.Struct, gc=False):
    """One candidate of a position, or one generated token (chat, Responses)."""

    token: str | None = None
    logprob: float | None = None
    top_logprobs: list[Entry] | None = None


class Lists(msgspec.Struct, gc=False):
    """`choices[].logprobs`: chat has `content`, completions parallel lists."""

    content: list[Entry] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


class PromptEntry(msgspec.Struct, gc=False):
    """One candidate of a prompt position."""

    logprob: float | None = None
    rank: int | None = None
    decoded_token: str | None = None


PromptPositions: TypeAlias = list[dict[str, PromptEntry] | None]


class Message(msgspec.Struct, gc=False):
    """A chat message or its streamed delta; only plain text is compared."""

    content: Any = None


class Choice(msgspec.Struct, gc=False):
    """One answer, or a piece of it in a stream."""

    index: int = 0
    text: str | None = None
    message: Message | None = None
    delta: Message | None = None
    logprobs: Lists | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_logprobs: PromptPositions | None = None
    prompt_token_ids: list[int] | None = None


class TgiToken(msgspec.Struct, gc=False):
    """A token of TGI."""

    id: int | None = None
    text: str = ""
    logprob: float | None = None
    special: bool = False


class TgiDetails(msgspec.Struct, gc=False):
    """`details` of a TGI answer."""

    finish_reason: str | None = None
    prefill: list[TgiToken] | None = None
    tokens: list[TgiToken] | None = None
    top_tokens: list[list[TgiToken]] | None = None


class OutputPart(msgspec.Struct, gc=False):
    """One content part of a Responses answer."""

    text: str | None = None
    logprobs: list[Entry] | None = None


class OutputItem(msgspec.Struct, gc=False):
    """One output item of a Responses answer."""

    content: list[OutputPart] | None = None


class Usage(msgspec.Struct, gc=False):
    """How many tokens the prompt had."""

    prompt_tokens: int | None = None


class Body(msgspec.Struct, gc=False):
    """A response body, or one chunk of a streamed one."""

    object: str | None = None
    choices: list[Choice] | None = None
    prompt_logprobs: PromptPositions | None = None
    prompt_token_ids: list[int] | None = None
    usage: Usage | None = None
    details: TgiDetails | None = None
    generated_text: str | None = None
    output: list[OutputItem] | None = None
    status: str | None = None
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class SentRequest(msgspec.Struct, gc=False):
    """What of a request says how the answer's lists are to be read."""

    echo: bool | None = None
    temperature: float | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None


class ScoredLine(msgspec.Struct, gc=False):
    """A line of either form."""

    request: SentRequest = msgspec.field(default_factory=SentRequest)
    response: Body | list[Body] | str | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None
    status: int | None = None
    logprobs_mode: str | None = None
