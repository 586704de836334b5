# SPDX-License-Identifier: BSD-3-Clause
"""The error of the model."""

from __future__ import annotations

import errno

from nupa.base.errors import LocalError


class ModelError(LocalError):
    """The question has no answer: a wrong profile, network, work or file.

    The message names what was asked, what was found, and what to do.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, errno.EINVAL)
