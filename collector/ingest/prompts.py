"""The input side of a request: its prompts as features. The text goes no further than this."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from collector.ingest.shapes import Message, Part, Request
from detectors.features import text_features

NAN = math.nan
# The order of `Prompt.features`, which is that of `TextFeatures`.
TEXT_SIGNALS = (
    "prompt_chars",
    "prompt_nonprintable_ratio",
    "prompt_whitespace_ratio",
    "prompt_digit_ratio",
    "prompt_punctuation_ratio",
    "prompt_nonascii_ratio",
    "prompt_json_ratio",
    "prompt_compression_ratio",
    "prompt_distinct_ratio",
)
_NO_TEXT = (NAN,) * len(TEXT_SIGNALS)


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """One prompt of a request: its text, or only how many tokens it had (given as ids)."""

    text: str | None = None
    tokens: float = NAN

    def features(self) -> tuple[float, ...]:
        """Return the values of `TEXT_SIGNALS`; all NaN where there is no text."""
        return _NO_TEXT if self.text is None else text_features(self.text)


def prompts_of(request: Request) -> list[Prompt]:
    """Return the prompts of `request`: one, several for a list of them, none if it has none.

    Messages are joined by line breaks, roles and parts without text are left out.
    """
    if request.messages is not None:
        return [Prompt("\n".join(_texts(request.messages)))]
    if request.prompt is not None:
        return _of_prompt(request.prompt)
    if request.inputs is not None:
        return [Prompt(request.inputs)]
    if request.input is not None:
        given = [request.input] if isinstance(request.input, str) else request.input
        before = [request.instructions] if request.instructions else []
        return [Prompt("\n".join([*before, *_texts(given)]))]
    return []


def _of_prompt(prompt: str | list[str | int | list[int]]) -> list[Prompt]:
    if isinstance(prompt, str):
        return [Prompt(prompt)]
    ids = sum(isinstance(item, int) for item in prompt)
    if ids:
        return [Prompt(tokens=float(ids))]
    return [
        Prompt(item) if isinstance(item, str) else Prompt(tokens=float(len(item)))
        for item in prompt
        if not isinstance(item, int)
    ]


def _texts(messages: list[Message] | list[Message | str] | list[str]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, str):
            yield message
        elif message.content is not None:
            yield text_of(message.content)


def text_of(content: str | list[Part | str]) -> str:
    """Return the text of a message's content, its parts joined by line breaks."""
    if isinstance(content, str):
        return content
    texts = (part if isinstance(part, str) else part.text for part in content)
    return "\n".join(text for text in texts if text)
