# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions by origin: LocalError for misuse, RemoteError for the other end, FabricError else."""

from __future__ import annotations


class NupaError(Exception):
    """The base of all of NUPA's exceptions.

    The message says what was asked, what was found and what to do.  errno: as in errno(3),
    positive; 0 where no errno fits.
    """

    def __init__(self, message: str, errno: int = 0) -> None:
        super().__init__(message)
        self.errno = errno


class LocalError(NupaError):
    """The request cannot be met: a wrong name, a limit, a missing permission."""


class RemoteError(NupaError):
    """The other end refused, or is gone."""


class FabricError(NupaError):
    """The fabric is damaged, of another version, full, or does not answer."""
