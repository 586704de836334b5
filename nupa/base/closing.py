# SPDX-License-Identifier: BSD-3-Clause
"""Context managers that call close()."""

from __future__ import annotations

from typing import Self


class Closing:
    """A base class for objects with a close() that may be called twice."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
