# SPDX-License-Identifier: BSD-3-Clause
"""Classes of pyverbs for features that this device lacks: they import, making one is refused.

A program that uses them only if the device can runs here, too.
"""

from __future__ import annotations

import errno

from nupa.verbs.base import PyverbsCM
from nupa.verbs.base.errors import PyverbsRDMAError


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
    """Another action of a rule on a packet."""


class FlowAttr(Unsupported):
    """Attributes of a Flow."""


class Spec(Unsupported):
    """A match of a rule."""


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
    """Attributes to modify a WQ."""


class WQInitAttr(Unsupported):
    """Attributes of a new WQ."""


class RwqIndTable(Unsupported):
    """WQs among which packets are spread."""


class RwqIndTableInitAttr(Unsupported):
    """Attributes of a RwqIndTable."""


class RxHashConf(Unsupported):
    """The hash by which packets are spread."""


class WcTmInfo(Unsupported):
    """Tag and private data of a completion."""


class OpsWr(Unsupported):
    """A request to a list of tags."""
