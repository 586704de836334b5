# SPDX-License-Identifier: BSD-3-Clause
"""Plain tables and JSON on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Aligns columns to the left, with two blanks between them and none at the end of a line."""
    lines = [list(head), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def as_json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2)


def print_json(value: Any) -> None:
    print(as_json(value))
