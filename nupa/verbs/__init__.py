# SPDX-License-Identifier: BSD-3-Clause
"""RDMA verbs with pyverbs' names: contexts, protection domains, memory, queues, work requests.

Knows verbs objects and their C structures; never rings, movers or topologies.  A pyverbs program
runs with its import changed.  Each module of pyverbs is importable here under its name:
nupa.verbs.device, .pd, .mr, .cq, .qp, .wr, .addr, .srq, .enums ...; as_pyverbs has the table.
"""

import sys

from nupa.verbs.addr import AH, GID, GRH, AHAttr, GlobalRoute
from nupa.verbs.as_pyverbs import Aliases
from nupa.verbs.base import PyverbsRDMAErrno
from nupa.verbs.base.errors import (
    CompletionError,
    FabricCompletionError,
    LocalCompletionError,
    PyverbsError,
    PyverbsRDMAError,
    PyverbsUserError,
    RemoteCompletionError,
)
from nupa.verbs.batch import RecvBatch, SendBatch, WCBatch
from nupa.verbs.connection import Address, address, connect, connect_to
from nupa.verbs.cq import CQ, CQEX, WC, CompChannel, CqInitAttrEx, PollCqAttr
from nupa.verbs.device import (
    Context,
    Device,
    DeviceAttr,
    DeviceAttrEx,
    GIDEntry,
    PortAttr,
    get_device_list,
)
from nupa.verbs.device.dm import DM, AllocDmAttr
from nupa.verbs.device.event import AsyncEvent
from nupa.verbs.mr import DMMR, MR, MW, MWBind, MWBindInfo, NullMR
from nupa.verbs.pd import (
    PD,
    ParentDomain,
    ParentDomainContext,
    ParentDomainInitAttr,
    ThreadDomain,
)
from nupa.verbs.post import PostError
from nupa.verbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from nupa.verbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
from nupa.verbs.wr import SGE, RecvWR, SendWR
from nupa.verbs.xrcd import XRCD, XRCDInitAttr

__all__ = [
    "AH",
    "CQ",
    "CQEX",
    "DM",
    "DMMR",
    "GID",
    "GRH",
    "MR",
    "MW",
    "PD",
    "QP",
    "SGE",
    "SRQ",
    "WC",
    "XRCD",
    "AHAttr",
    "Address",
    "AllocDmAttr",
    "AsyncEvent",
    "CompChannel",
    "CompletionError",
    "Context",
    "CqInitAttrEx",
    "Device",
    "DeviceAttr",
    "DeviceAttrEx",
    "FabricCompletionError",
    "GIDEntry",
    "GlobalRoute",
    "LocalCompletionError",
    "MWBind",
    "MWBindInfo",
    "NullMR",
    "ParentDomain",
    "ParentDomainContext",
    "ParentDomainInitAttr",
    "PollCqAttr",
    "PortAttr",
    "PostError",
    "PyverbsError",
    "PyverbsRDMAErrno",
    "PyverbsRDMAError",
    "PyverbsUserError",
    "QPAttr",
    "QPCap",
    "QPEx",
    "QPInitAttr",
    "QPInitAttrEx",
    "RecvBatch",
    "RecvWR",
    "RemoteCompletionError",
    "SendBatch",
    "SendWR",
    "SrqAttr",
    "SrqInitAttr",
    "SrqInitAttrEx",
    "ThreadDomain",
    "WCBatch",
    "XRCDInitAttr",
    "address",
    "connect",
    "connect_to",
    "get_device_list",
]

if Aliases(__name__) not in sys.meta_path:
    sys.meta_path.append(Aliases(__name__))
