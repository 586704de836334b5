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


class DmaBuf(Unsupported):
    """Memory of a GPU, to be shared with the device."""


class DmaBufMR(Unsupported):
    """Memory region of a DmaBuf."""


class Flow(Unsupported):
    """Rule that steers packets to a QP."""


class FlowAction(Unsupported):
    """What else a rule does to a packet."""


class FlowAttr(Unsupported):
    """What a Flow is to be."""


class Spec(Unsupported):
    """What a rule matches."""


class EthSpec(Spec):
    """Ethernet header."""


class Ipv4ExtSpec(Spec):
    """IPv4 header."""


class Ipv6Spec(Spec):
    """IPv6 header."""


class TcpUdpSpec(Spec):
    """Ports."""


class WQ(Unsupported):
    """Receive work queue."""


class WQAttr(Unsupported):
    """What a WQ is to become."""


class WQInitAttr(Unsupported):
    """What a WQ is to be."""


class RwqIndTable(Unsupported):
    """WQs among which packets are spread."""


class RwqIndTableInitAttr(Unsupported):
    """What a RwqIndTable is to be."""


class RxHashConf(Unsupported):
    """How packets are spread."""


class WcTmInfo(Unsupported):
    """Tag and private data of a completion."""


class OpsWr(Unsupported):
    """Request to a list of tags."""
