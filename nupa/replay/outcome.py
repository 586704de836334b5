# SPDX-License-Identifier: BSD-3-Clause
"""The outcome of one request, compared with the capture."""

from __future__ import annotations

from nupa.replay.requests import Content, Span, without

_SHOWN_BYTES = 16


class RequestOutcome:
    """The outcome of one request: its differences (what, captured, replayed).

    *compared*: something could be compared; *partly*: not all bytes were captured.
    """

    def __init__(self) -> None:
        self.differences: list[tuple[str, str, str]] = []
        self.compared = False
        self.partly = False

    def compare(self, what: str, captured: object, came: object) -> bool:
        self.compared = True
        if captured != came:
            self.differences.append((what, str(captured), str(came)))
        return captured == came

    def compare_bytes(
        self, what: str, content: Content, came: bytes, raced: list[Span] | None = None
    ) -> None:
        """Compares bytes that were captured, and that no other request wrote meanwhile."""
        spans = without(content.known(), raced or [])
        self.compared = self.compared or bool(spans) or not content.length
        self.partly = self.partly or sum(end - start for start, end in spans) < content.length
        whole = content.whole()
        if whole == came:
            return
        for start, end in spans:
            if whole[start:end] == came[start:end]:
                continue
            at = next(i for i in range(start, end) if whole[i] != came[i])
            count = sum(a != b for a, b in zip(whole[start:end], came[start:end], strict=True))
            shown = slice(at, min(at + _SHOWN_BYTES, end))
            self.differences.append(
                (
                    f"{what}, {count} bytes from byte {at} on",
                    whole[shown].hex(" "),
                    came[shown].hex(" "),
                )
            )
            return
