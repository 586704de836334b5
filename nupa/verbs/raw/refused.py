# SPDX-License-Identifier: BSD-3-Clause
"""Objects that the device refuses to make."""

from __future__ import annotations

import errno
from typing import NoReturn

from nupa.verbs.base import PyverbsCM
from nupa.verbs.base.errors import PyverbsRDMAError


class Refused(PyverbsCM):
    """An object of a feature that the device lacks, of which none exists."""

    def _refuse(self, message: str) -> NoReturn:
        """Raises PyverbsRDMAError with EOPNOTSUPP, as pyverbs does over such a device."""
        raise PyverbsRDMAError(message, errno.EOPNOTSUPP)
