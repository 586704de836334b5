# SPDX-License-Identifier: BSD-3-Clause
"""What pyverbs has and this device has not: the names import, making one is refused.

So a program that would use them only if the device could runs here too.
"""

from __future__ import annotations

import errno

from nupa.verbs.base import PyverbsCM
from nupa.verbs.errors import PyverbsRDMAError


class Unsupported(PyverbsCM):
    """Raises PyverbsRDMAError with EOPNOTSUPP, as a device without the feature does."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        raise PyverbsRDMAError(f"Failed to create {type(self).__name__}", errno.EOPNOTSUPP)


class MW(Unsupported):
    """Memory window."""


class MWBind(Unsupported):
    """Arguments of binding a type 1 memory window."""


class MWBindInfo(Unsupported):
    """What a memory window is bound to."""


class DM(Unsupported):
    """Device memory."""


class AllocDmAttr(Unsupported):
    """What a DM is to be."""


class DMMR(Unsupported):
    """Memory region of device memory."""


class XRCD(Unsupported):
    """XRC domain."""


class XRCDInitAttr(Unsupported):
    """What an XRCD is to be."""


class ParentDomain(Unsupported):
    """Protection domain with its own allocators."""


class ParentDomainInitAttr(Unsupported):
    """What a ParentDomain is to be."""


class ParentDomainContext(Unsupported):
    """The allocators of a ParentDomain."""
