# SPDX-License-Identifier: BSD-3-Clause
"""What ends with close(), as a context manager."""

from __future__ import annotations

from typing import Self


class Closing:
    """Base of what has a close() that may be called twice."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
