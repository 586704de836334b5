# SPDX-License-Identifier: BSD-3-Clause
"""Flow steering (man 3 ibv_create_flow): rules by which packets go to a QP."""

from __future__ import annotations

from nupa._engine import ffi
from nupa.verbs.base import PyverbsObject, expect
from nupa.verbs.base.fields import Field
from nupa.verbs.enums import IBV_FLOW_ATTR_NORMAL, ibv_flow_attr_type
from nupa.verbs.qp import QP
from nupa.verbs.raw.refused import Refused
from nupa.verbs.raw.spec import Spec


class FlowAttr(PyverbsObject):
    """Attributes of a Flow; *specs* is the list of its matches, num_of_specs what it declares."""

    def __init__(
        self,
        num_of_specs: int = 0,
        flow_type: int = IBV_FLOW_ATTR_NORMAL,
        priority: int = 0,
        port: int = 1,
        flags: int = 0,
    ) -> None:
        size = ffi.sizeof("struct ibv_flow_attr")
        values = (0, int(flow_type), size, priority, num_of_specs, port, flags)
        self._c = ffi.new("struct ibv_flow_attr *", values)
        self._specs: list[Spec] = []

    type = Field("type", dict(ibv_flow_attr_type._value2member_map_))
    priority = Field("priority")
    num_of_specs = Field("num_of_specs")
    port = Field("port")
    flags = Field("flags")

    @property
    def specs(self) -> list[Spec]:
        return self._specs


class Flow(Refused):
    """A rule that steers packets to a QP.  PyverbsRDMAError, EOPNOTSUPP: there are no packets."""

    def __init__(self, qp: QP, flow_attr: FlowAttr) -> None:
        expect(qp, QP, "qp")
        expect(flow_attr, FlowAttr, "flow_attr")
        self._refuse("Flow creation failed")


class FlowAction(PyverbsObject):
    """Another action of a rule; it can be built, and nothing takes it."""
