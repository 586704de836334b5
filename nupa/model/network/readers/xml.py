# SPDX-License-Identifier: BSD-3-Clause
"""A small XML tree with line numbers; files are hostile: no document types, entities or depth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from nupa.model.errors import ModelError

DEPTH_MAX = 64
ELEMENTS_MAX = 100_000


@dataclass(eq=False)
class Element:
    """An element: its attributes, its children, and the line that it begins in."""

    source: str
    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def fail(self, message: str) -> NoReturn:
        raise ModelError(f"{self.source}:{self.line}: <{self.tag}>: {message}")

    def all(self, *tags: str) -> Iterator[Element]:
        """Yields the elements of those names below this one, in the order of the file."""
        for child in self.children:
            if child.tag in tags:
                yield child
            yield from child.all(*tags)

    def number(self, name: str, default: float | None = None, high: float = 1e12) -> float:
        """Returns an attribute that is a number, 0 to *high*; units behind a blank are ignored."""
        text = self.attributes.get(name, "").partition(" ")[0]
        if not text:
            if default is None:
                self.fail(f"{name} is missing")
            return default
        try:
            value = float(text)
        except ValueError:
            self.fail(f"{name} is {text[:40]!r}: a number is needed")
        if not 0 <= value <= high:
            self.fail(f"{name} is {value:g}: 0 to {high:g} is possible")
        return value


def parse(data: bytes, source: str) -> Element:
    """Returns the outermost element.  ModelError: not XML, a document type, too deep or large."""
    parser = expat.ParserCreate()
    root = Element(source, "", {}, 0)
    stack = [root]
    count = 0

    def refuse(*_: object) -> NoReturn:
        raise ModelError(
            f"{source}:{parser.CurrentLineNumber}: a document type or entity: files of NCCL have "
            "none, and none is read"
        )

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(stack) > DEPTH_MAX or count > ELEMENTS_MAX:
            raise ModelError(
                f"{source}:{parser.CurrentLineNumber}: more than {DEPTH_MAX} elements deep, or "
                f"{ELEMENTS_MAX} in all"
            )
        element = Element(source, tag, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _tag: stack.pop()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise ModelError(f"{source}:{error.lineno}: not XML: {message}") from error
    return root.children[0]
