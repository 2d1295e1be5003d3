"""Tokens as text: some engine versions write them as the tokenizer's file does (`Ġthe`, `▁the`).

vLLM 0.9 does so, 0.8 and 0.32 write ` the`; a candidate is often another version than production.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_BYTE_MARKS = ("Ġ", "Ċ")  # space and line break of byte-level vocabularies
_PIECE_MARK = "▁"  # space of SentencePiece
_PRINTABLE = (range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100))


def speller(labels: Iterable[str]) -> Callable[[str], str] | None:
    """Return what turns the labels of one line into text; None where they are text already.

    Text has plain spaces in it; a vocabulary's own spelling has none.
    """
    found = list(labels)
    if any(" " in label or "\n" in label for label in found):
        return None
    if any(mark in label for label in found for mark in _BYTE_MARKS):
        table = _byte_table()
        return lambda label: _from_bytes(label, table)
    if any(_PIECE_MARK in label for label in found):
        return lambda label: label.replace(_PIECE_MARK, " ")
    return None


def _byte_table() -> dict[str, int]:
    """Return the letters that stand for bytes: printable ones for themselves, else from U+0100.

    References:
        The byte-level BPE of GPT-2, whose vocabulary files most models follow.
    """
    printable = [byte for part in _PRINTABLE for byte in part]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + place): byte for place, byte in enumerate(others)}


def _from_bytes(label: str, table: dict[str, int]) -> str:
    """Return the text of a token, itself where it is none of bytes (special tokens)."""
    known = [table.get(letter) for letter in label]
    data = bytes(byte for byte in known if byte is not None)
    return data.decode("utf-8", "replace") if len(data) == len(label) else label
