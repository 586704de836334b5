# SPDX-License-Identifier: BSD-3-Clause
"""Text files of others, read line by line; errors name file, line and field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from nupa.model.errors import ModelError

_SHOWN = 40
_DIGITS_MAX = 18


class TextLine:
    """One line: its words, and errors that name it."""

    def __init__(self, source: str, number: int, words: list[str]) -> None:
        self.source = source
        self.number = number
        self.words = words

    def fail(self, message: str) -> NoReturn:
        raise ModelError(f"{self.source}:{self.number}: {message}")

    def word(self, index: int, field: str) -> str:
        if index >= len(self.words):
            self.fail(f"{field} is missing: the line has {len(self.words)} words")
        return self.words[index]

    def whole(self, index: int, field: str, low: int, high: int) -> int:
        """Returns a whole number.  ModelError: it is none, or outside *low* to *high*."""
        word = self.word(index, field)
        if not word.isascii() or not word.isdigit():
            self.fail(f"{field} is {word[:_SHOWN]!r}: a whole number is needed")
        if len(word) > _DIGITS_MAX or not low <= int(word) <= high:
            self.fail(f"{field} is {word[:_SHOWN]}: {low} to {high} is possible")
        return int(word)

    def real(self, word: str, field: str, low: float, high: float) -> float:
        """Returns a number.  ModelError: it is none, not finite, or outside *low* to *high*."""
        try:
            value = float(word)
        except ValueError:
            self.fail(f"{field} is {word[:_SHOWN]!r}: a number is needed")
        if not low <= value <= high:
            self.fail(f"{field} is {value:g}: {low:g} to {high:g} is possible")
        return value


def lines(data: bytes, source: str) -> Iterator[TextLine]:
    """Yields the lines that have words; `#` begins a comment.  ModelError: not UTF-8."""
    for number, raw in enumerate(data.splitlines(), 1):
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{source}:{number}: not UTF-8") from error
        words = text.partition("#")[0].split()
        if words:
            yield TextLine(source, number, words)
