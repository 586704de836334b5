# SPDX-License-Identifier: BSD-3-Clause
"""The error of a topology that contradicts itself."""

from __future__ import annotations

import errno

from nupa.base.errors import LocalError


class TopologyError(LocalError):
    """The topology is invalid: the message names the file, the table and the key."""

    def __init__(self, message: str) -> None:
        super().__init__(message, errno.EINVAL)
