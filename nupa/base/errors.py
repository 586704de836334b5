# SPDX-License-Identifier: BSD-3-Clause
"""Whose fault: LocalError for misuse, RemoteError for the other end, FabricError for the fabric."""

from __future__ import annotations


class NupaError(Exception):
    """Base of all of NUPA's exceptions.

    The message says what was asked, what was found and what to do.  errno: as in errno(3),
    positive; 0 where no errno fits.
    """

    def __init__(self, message: str, errno: int = 0) -> None:
        super().__init__(message)
        self.errno = errno


class LocalError(NupaError):
    """The caller asked for what cannot be: a wrong name, a limit, a missing permission."""


class RemoteError(NupaError):
    """The other end refused, or is gone."""


class FabricError(NupaError):
    """The fabric itself is damaged, of another version, full, or does not answer."""
