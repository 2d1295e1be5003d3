"""Reads a page as a browser would: its tags, and the text that a person would see."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VOID = {"meta", "link", "br"}


class Reader(HTMLParser):
    """Collects the tags, checks that they nest, and keeps the text that a person would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.misplaced: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.misplaced.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Reader:
    """Return the page, read."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def words(page: str) -> str:
    """Return the text of the page, white space as one space."""
    return re.sub(r"\s+", " ", "".join(read(page).text))
