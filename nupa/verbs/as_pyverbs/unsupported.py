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


def _unsupported(name: str, what: str, base: type[Unsupported] = Unsupported) -> type[Unsupported]:
    return type(name, (base,), {"__doc__": what, "__module__": __name__})


DmaBuf = _unsupported("DmaBuf", "Memory of a GPU, to be shared with the device.")
DmaBufMR = _unsupported("DmaBufMR", "Memory region of a DmaBuf.")
Flow = _unsupported("Flow", "Rule that steers packets to a QP.")
FlowAction = _unsupported("FlowAction", "Another action of a rule on a packet.")
FlowAttr = _unsupported("FlowAttr", "Attributes of a Flow.")
Spec = _unsupported("Spec", "A match of a rule.")
EthSpec = _unsupported("EthSpec", "Ethernet header.", Spec)
Ipv4ExtSpec = _unsupported("Ipv4ExtSpec", "IPv4 header.", Spec)
Ipv6Spec = _unsupported("Ipv6Spec", "IPv6 header.", Spec)
TcpUdpSpec = _unsupported("TcpUdpSpec", "Ports.", Spec)
WQ = _unsupported("WQ", "Receive work queue.")
WQAttr = _unsupported("WQAttr", "Attributes to modify a WQ.")
WQInitAttr = _unsupported("WQInitAttr", "Attributes of a new WQ.")
RwqIndTable = _unsupported("RwqIndTable", "WQs among which packets are spread.")
RwqIndTableInitAttr = _unsupported("RwqIndTableInitAttr", "Attributes of a RwqIndTable.")
RxHashConf = _unsupported("RxHashConf", "The hash by which packets are spread.")
WcTmInfo = _unsupported("WcTmInfo", "Tag and private data of a completion.")
OpsWr = _unsupported("OpsWr", "A request to a list of tags.")
