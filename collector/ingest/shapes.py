"""What a line of logged generations looks like on the wire: only the members that are read.

Everything else is skipped by the decoder without making an object of it. Members are optional
because engines leave out, null and rename them freely; one `Reply` covers the bodies and stream
chunks of all engines, since a line does not say who made it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Part(msgspec.Struct, gc=False):
    """One part of a message; images and audio have no text."""

    text: str | None = None


class Message(msgspec.Struct, gc=False):
    """A chat message, its streamed delta, or an input item of the Responses API."""

    content: str | list[Part | str] | None = None


class TgiParameters(msgspec.Struct, gc=False):
    """`parameters` of a TGI request."""

    temperature: float | None = None
    max_new_tokens: float | None = None
    top_n_tokens: int | None = None


class Request(msgspec.Struct, gc=False):
    """A request as sent: completions, chat, Responses, or TGI."""

    model: str | None = None
    prompt: str | list[str | int | list[int]] | None = None
    messages: list[Message] | None = None
    input: str | list[Message | str] | None = None
    instructions: str | None = None
    inputs: str | None = None
    parameters: TgiParameters | None = None
    temperature: float | None = None
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    max_output_tokens: float | None = None
    n: int | None = None
    echo: bool | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None


class TopEntry(msgspec.Struct, gc=False):
    """One candidate of a position (chat, Responses, TGI)."""

    logprob: float | None = None


class TokenEntry(msgspec.Struct, gc=False):
    """One generated token of chat or Responses."""

    token: str | None = None
    logprob: float | None = None
    top_logprobs: list[TopEntry] | None = None


class Logprobs(msgspec.Struct, gc=False):
    """`choices[].logprobs`: chat has `content`, completions (and vLLM 0.3 chat) parallel lists."""

    content: list[TokenEntry] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None
    text_offset: list[int] | None = None


class PromptEntry(msgspec.Struct, gc=False):
    """One candidate of a prompt position; a map of them by token id is one position."""

    logprob: float | None = None
    rank: int | None = None


PromptPositions: TypeAlias = list[dict[str, PromptEntry] | None]


class Choice(msgspec.Struct, gc=False):
    """One answer, or a piece of it in a stream."""

    index: int = 0
    text: str | None = None
    message: Message | None = None
    delta: Message | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    prompt_logprobs: PromptPositions | None = None
    prompt_token_ids: list[int] | None = None


class Usage(msgspec.Struct, gc=False):
    """Token counts; the Responses API has its own names."""

    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None


class OutputPart(msgspec.Struct, gc=False):
    """One content part of a Responses answer."""

    text: str | None = None
    logprobs: list[TokenEntry] | None = None


class OutputItem(msgspec.Struct, gc=False):
    """One output item of a Responses answer."""

    content: list[OutputPart] | None = None


class Incomplete(msgspec.Struct, gc=False):
    """Why a Responses answer ended early."""

    reason: str | None = None


class TgiToken(msgspec.Struct, gc=False):
    """A token of TGI; `special` ones (end of text) are not compared with other engines."""

    text: str = ""
    logprob: float | None = None
    special: bool = False


class TgiDetails(msgspec.Struct, gc=False):
    """`details` of a TGI answer; the last event of a stream has no tokens in it."""

    finish_reason: str | None = None
    generated_tokens: float | None = None
    input_length: float | None = None
    prefill: list[TgiToken] | None = None
    tokens: list[TgiToken] | None = None
    top_tokens: list[list[TgiToken]] | None = None


class Reply(msgspec.Struct, gc=False):
    """A response body, or one chunk of a streamed one."""

    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    object: str | None = None
    created: float | None = None
    created_at: float | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    choices: list[Choice] | None = None
    usage: Usage | None = None
    prompt_logprobs: PromptPositions | None = None
    prompt_token_ids: list[int] | None = None
    output: list[OutputItem] | None = None
    incomplete_details: Incomplete | None = None
    status: str | None = None
    generated_text: str | None = None
    details: TgiDetails | None = None
    token: TgiToken | None = None
    top_tokens: list[TgiToken] | None = None
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    detail: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Line(msgspec.Struct, gc=False):
    """One logged generation: `request` as sent, `response` as received, the rest if known."""

    request: Request
    response: Reply | list[Reply] | str
    at: str | float | None = None
    tier: str | None = None
    target: str | None = None
    segment: str | None = None
    latency_seconds: float | None = None
    ms: float | None = None
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    sample_ratio: float | None = None
    status: int | None = None
    engine: str | None = None
    logprobs_mode: str | None = None


class SizeReply(msgspec.Struct, gc=False, frozen=True):
    """What is read of the response of a line that is too long."""

    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    model: str | None = None
    system_fingerprint: str | None = None
    usage: Usage | None = None


class SizeLine(msgspec.Struct, gc=False):
    """What is read of a line that is too long: where it belongs and how large its prompt is."""

    request: Request
    response: SizeReply = SizeReply()
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    sample_ratio: float | None = None
    at: str | float | None = None
    tier: str | None = None
    target: str | None = None
    segment: str | None = None
    engine: str | None = None
    logprobs_mode: str | None = None
