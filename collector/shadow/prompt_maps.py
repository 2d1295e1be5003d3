"""A prompt that an engine scored: maps of token ids, one a position, the first of them null."""

from __future__ import annotations

from collections.abc import Sequence

from collector.shadow.records import LineProblemError, Refusal, Sequenced
from collector.shadow.sequences import Listed, sequenced
from collector.shadow.shapes import PromptEntry, PromptPositions


def scored_prompt(
    positions: PromptPositions, listed: int | None, ids: Sequence[int] | None
) -> Sequenced:
    """Return the scored tokens of a prompt.

    Args:
        positions: Maps from token id to the k most likely tokens and the prompt's own.
        listed: The k that was asked for, if known.
        ids: The prompt's token ids, if known; else the own token is the one that stands beside
            the k largest, or the first of a map that has only k (vLLM's Python front end).

    Raises:
        LineProblemError: If the own token of a position cannot be told, or an id is no number.
    """
    if ids is not None and len(ids) != len(positions):
        ids = None
    k = listed if listed is not None else max((len(one or {}) for one in positions), default=1) - 1
    own = [
        _own(entries, k, None if ids is None else ids[place])
        for place, entries in enumerate(positions)
    ]
    lists = [
        Listed(_by_label(entries or {}), own=_label(key, entries or {}), k=k)
        for key, entries in zip(own, positions, strict=True)
    ]
    values = [
        None if key is None or not entries or key not in entries else entries[key].logprob
        for key, entries in zip(own, positions, strict=True)
    ]
    labels = [one.own or "" for one in lists]
    try:
        numbers = [int(key) for key in own if key is not None]
    except ValueError as error:
        msg = "prompt_logprobs with keys that are no token ids"
        raise LineProblemError(Refusal.MALFORMED, msg) from error
    return sequenced(labels, values, lists, numbers if len(numbers) == len(own) else None)


def _own(entries: dict[str, PromptEntry] | None, k: int, known: int | None) -> str | None:
    """Return the key of the prompt's own token, None for a null position without known ids."""
    if known is not None:
        return str(known)
    if not entries:
        return None
    keys = list(entries)
    if len(keys) > k:
        return max(keys, key=lambda key: entries[key].rank or 0)
    others = [entries[key].rank or 0 for key in keys[1:]]
    if others != sorted(others):
        msg = (
            "a prompt position without order: which candidate is the prompt's own token is not "
            "told; ask the engine for return_token_ids"
        )
        raise LineProblemError(Refusal.PROMPT_ORDER, msg)
    return keys[0]


def _label(key: str | None, entries: dict[str, PromptEntry]) -> str:
    """Return the text of a token, `token_id:7` where only its number is known."""
    if key is None:
        return ""
    entry = entries.get(key)
    text = entry.decoded_token if entry is not None else None
    return f"token_id:{key}" if text is None else text


def _by_label(entries: dict[str, PromptEntry]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for key, entry in entries.items():
        label = _label(key, entries)
        found[label] = None if label in found else entry.logprob
    return found
