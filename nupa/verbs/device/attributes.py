# SPDX-License-Identifier: BSD-3-Clause
"""Attributes of a device and its port (man 3 ibv_query_device, ibv_query_port)."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, ClassVar, Never, TypeVar

from nupa._engine import ffi
from nupa.verbs import utils
from nupa.verbs.base import PyverbsObject
from nupa.verbs.base.fields import Attribute, Field, ReadOnly, table
from nupa.verbs.enums import (
    ibv_atomic_cap,
    ibv_device_cap_flags,
    ibv_mtu,
    ibv_port_state,
)

P = TypeVar("P", bound="_Part")

_ATOMIC: dict[int, Any] = dict(ibv_atomic_cap._value2member_map_)
_MTU: dict[int, Any] = dict(ibv_mtu._value2member_map_)
_STATE: dict[int, Any] = dict(ibv_port_state._value2member_map_)


class _Part(PyverbsObject):
    """A structure inside another, which it keeps alive; made alone, one of zeros."""

    _struct: ClassVar[str]

    def __init__(self, owner: PyverbsObject | None = None, c: Any = None) -> None:
        self._owner = owner
        self._c = ffi.new(f"struct {self._struct} *") if c is None else c


class DeviceAttr(PyverbsObject):
    """Limits and identity of a device (ibv_device_attr).  GUIDs are big endian."""

    def __init__(self, c: Any = None) -> None:
        self._c = ffi.new("struct ibv_device_attr *") if c is None else c

    @property
    def fw_version(self) -> str:
        return bytes(ffi.string(self._c.fw_ver)).decode()

    @property
    def device_cap_flags(self) -> ibv_device_cap_flags:
        return ibv_device_cap_flags(self._c.device_cap_flags)

    node_guid = ReadOnly("node_guid")
    sys_image_guid = ReadOnly("sys_image_guid")
    max_mr_size = ReadOnly("max_mr_size")
    page_size_cap = ReadOnly("page_size_cap")
    vendor_id = ReadOnly("vendor_id")
    vendor_part_id = ReadOnly("vendor_part_id")
    hw_ver = ReadOnly("hw_ver")
    max_qp = ReadOnly("max_qp")
    max_qp_wr = ReadOnly("max_qp_wr")
    max_sge = ReadOnly("max_sge")
    max_sge_rd = ReadOnly("max_sge_rd")
    max_cq = ReadOnly("max_cq")
    max_cqe = ReadOnly("max_cqe")
    max_mr = ReadOnly("max_mr")
    max_pd = ReadOnly("max_pd")
    max_qp_rd_atom = ReadOnly("max_qp_rd_atom")
    max_ee_rd_atom = ReadOnly("max_ee_rd_atom")
    max_res_rd_atom = ReadOnly("max_res_rd_atom")
    max_qp_init_rd_atom = ReadOnly("max_qp_init_rd_atom")
    max_ee_init_rd_atom = ReadOnly("max_ee_init_rd_atom")
    atomic_caps = ReadOnly("atomic_cap", _ATOMIC)
    max_ee = ReadOnly("max_ee")
    max_rdd = ReadOnly("max_rdd")
    max_mw = ReadOnly("max_mw")
    max_raw_ipv6_qps = ReadOnly("max_raw_ipv6_qp")
    max_raw_ethy_qp = ReadOnly("max_raw_ethy_qp")
    max_mcast_grp = ReadOnly("max_mcast_grp")
    max_mcast_qp_attach = ReadOnly("max_mcast_qp_attach")
    max_ah = ReadOnly("max_ah")
    max_fmr = ReadOnly("max_fmr")
    max_map_per_fmr = ReadOnly("max_map_per_fmr")
    max_srq = ReadOnly("max_srq")
    max_srq_wr = ReadOnly("max_srq_wr")
    max_srq_sge = ReadOnly("max_srq_sge")
    max_pkeys = ReadOnly("max_pkeys")
    local_ca_ack_delay = ReadOnly("local_ca_ack_delay")
    phys_port_cnt = ReadOnly("phys_port_cnt")

    def __str__(self) -> str:
        rows = {
            "FW version": self.fw_version,
            "Node guid": utils.guid_format(self.node_guid),
            "Sys image GUID": utils.guid_format(self.sys_image_guid),
            "Max MR size": hex(self.max_mr_size),
            "Page size cap": hex(self.page_size_cap),
            "Vendor ID": hex(self.vendor_id),
            "Vendor part ID": self.vendor_part_id,
            "HW version": self.hw_ver,
            "Max QP": self.max_qp,
            "Max QP WR": self.max_qp_wr,
            "Device cap flags": utils.translate_device_caps(self.device_cap_flags),
            "Max SGE": self.max_sge,
            "Max SGE RD": self.max_sge_rd,
            "MAX CQ": self.max_cq,
            "Max CQE": self.max_cqe,
            "Max MR": self.max_mr,
            "Max PD": self.max_pd,
            "Max QP RD atom": self.max_qp_rd_atom,
            "Max EE RD atom": self.max_ee_rd_atom,
            "Max res RD atom": self.max_res_rd_atom,
            "Max QP init RD atom": self.max_qp_init_rd_atom,
            "Max EE init RD atom": self.max_ee_init_rd_atom,
            "Atomic caps": int(self.atomic_caps),
            "Max EE": self.max_ee,
            "Max RDD": self.max_rdd,
            "Max MW": self.max_mw,
            "Max raw IPv6 QPs": self.max_raw_ipv6_qps,
            "Max raw ethy QP": self.max_raw_ethy_qp,
            "Max mcast group": self.max_mcast_grp,
            "Max mcast QP attach": self.max_mcast_qp_attach,
            "Max AH": self.max_ah,
            "Max FMR": self.max_fmr,
            "Max map per FMR": self.max_map_per_fmr,
            "Max SRQ": self.max_srq,
            "Max SRQ WR": self.max_srq_wr,
            "Max SRQ SGE": self.max_srq_sge,
            "Max PKeys": self.max_pkeys,
            "local CA ack delay": self.local_ca_ack_delay,
            "Phys port count": self.phys_port_cnt,
        }
        return table(rows)


class QueryDeviceExInput(PyverbsObject):
    """Input of query_device_ex; comp_mask must be 0."""

    def __init__(self, comp_mask: int) -> None:
        self._c = ffi.new("struct ibv_query_device_ex_input *")
        self._c.comp_mask = comp_mask


class ODPCaps(_Part):
    """On-demand paging: a mask for each transport."""

    _struct = "ibv_device_attr_ex"

    general_caps = ReadOnly("odp_caps.general_caps")
    rc_odp_caps = ReadOnly("odp_caps.per_transport_caps.rc_odp_caps")
    uc_odp_caps = ReadOnly("odp_caps.per_transport_caps.uc_odp_caps")
    ud_odp_caps = ReadOnly("odp_caps.per_transport_caps.ud_odp_caps")
    xrc_odp_caps = Field("xrc_odp_caps")

    def __str__(self) -> str:
        masks = {"RC": self.rc_odp_caps, "UD": self.ud_odp_caps, "UC": self.uc_odp_caps}
        return f"ODP General caps: {utils.odp_general_caps_to_str(self.general_caps)}\n" + "".join(
            f"{transport} ODP caps: {utils.odp_transport_caps_to_str(mask)}\n"
            for transport, mask in {**masks, "XRC": self.xrc_odp_caps}.items()
        )


class TSOCaps(_Part):
    _struct = "ibv_tso_caps"
    max_tso = ReadOnly("max_tso")
    supported_qpts = ReadOnly("supported_qpts")


class RSSCaps(_Part):
    _struct = "ibv_rss_caps"
    supported_qpts = ReadOnly("supported_qpts")
    max_rwq_indirection_tables = ReadOnly("max_rwq_indirection_tables")
    max_rwq_indirection_table_size = ReadOnly("max_rwq_indirection_table_size")
    rx_hash_fields_mask = ReadOnly("rx_hash_fields_mask")
    rx_hash_function = ReadOnly("rx_hash_function")


class PacketPacingCaps(_Part):
    _struct = "ibv_packet_pacing_caps"
    qp_rate_limit_min = ReadOnly("qp_rate_limit_min")
    qp_rate_limit_max = ReadOnly("qp_rate_limit_max")
    supported_qpts = ReadOnly("supported_qpts")


class TMCaps(_Part):
    _struct = "ibv_tm_caps"
    max_rndv_hdr_size = ReadOnly("max_rndv_hdr_size")
    max_num_tags = ReadOnly("max_num_tags")
    flags = ReadOnly("flags")
    max_ops = ReadOnly("max_ops")
    max_sge = ReadOnly("max_sge")


class CQModerationCaps(_Part):
    _struct = "ibv_cq_moderation_caps"
    max_cq_count = ReadOnly("max_cq_count")
    max_cq_period = ReadOnly("max_cq_period")


class PCIAtomicCaps(_Part):
    _struct = "ibv_pci_atomic_caps"
    fetch_add = ReadOnly("fetch_add")
    swap = ReadOnly("swap")
    compare_swap = ReadOnly("compare_swap")


def _part(kind: type[P], path: str = "") -> Attribute[P, Never]:
    """Makes a structure inside that of a DeviceAttrEx."""
    get = attrgetter("_c" + (path and f".{path}"))
    return Attribute(lambda attr: kind(attr, get(attr)))


class DeviceAttrEx(PyverbsObject):
    """DeviceAttr and the later attributes (ibv_device_attr_ex)."""

    def __init__(self) -> None:
        self._c = ffi.new("struct ibv_device_attr_ex *")

    @property
    def orig_attr(self) -> DeviceAttr:
        return DeviceAttr(ffi.new("struct ibv_device_attr *", self._c.orig_attr))

    odp_caps = _part(ODPCaps)
    tso_caps = _part(TSOCaps, "tso_caps")
    rss_caps = _part(RSSCaps, "rss_caps")
    packet_pacing_caps = _part(PacketPacingCaps, "packet_pacing_caps")
    tm_caps = _part(TMCaps, "tm_caps")
    cq_mod_caps = _part(CQModerationCaps, "cq_mod_caps")
    pci_atomic_caps = _part(PCIAtomicCaps, "pci_atomic_caps")
    comp_mask = Field("comp_mask")
    completion_timestamp_mask = ReadOnly("completion_timestamp_mask")
    hca_core_clock = ReadOnly("hca_core_clock")
    device_cap_flags_ex = ReadOnly("device_cap_flags_ex")
    max_wq_type_rq = ReadOnly("max_wq_type_rq")
    raw_packet_caps = ReadOnly("raw_packet_caps")
    max_dm_size = ReadOnly("max_dm_size")
    phys_port_cnt_ex = ReadOnly("phys_port_cnt_ex")


class PortAttr(PyverbsObject):
    """State, sizes and speed of a port (ibv_port_attr)."""

    def __init__(self) -> None:
        self._c = ffi.new("struct ibv_port_attr *")

    state = ReadOnly("state", _STATE)
    max_mtu = ReadOnly("max_mtu", _MTU)
    active_mtu = ReadOnly("active_mtu", _MTU)
    gid_tbl_len = ReadOnly("gid_tbl_len")
    port_cap_flags = ReadOnly("port_cap_flags")
    max_msg_sz = ReadOnly("max_msg_sz")
    bad_pkey_cntr = ReadOnly("bad_pkey_cntr")
    qkey_viol_cntr = ReadOnly("qkey_viol_cntr")
    pkey_tbl_len = ReadOnly("pkey_tbl_len")
    lid = ReadOnly("lid")
    sm_lid = ReadOnly("sm_lid")
    lmc = ReadOnly("lmc")
    max_vl_num = ReadOnly("max_vl_num")
    sm_sl = ReadOnly("sm_sl")
    subnet_timeout = ReadOnly("subnet_timeout")
    init_type_reply = ReadOnly("init_type_reply")
    active_width = ReadOnly("active_width")
    active_speed = ReadOnly("active_speed")
    active_speed_ex = ReadOnly("active_speed_ex")
    phys_state = ReadOnly("phys_state")
    link_layer = ReadOnly("link_layer")
    flags = ReadOnly("flags")
    port_cap_flags2 = ReadOnly("port_cap_flags2")

    def __str__(self) -> str:
        return table(
            {
                "Port state": utils.port_state_to_str(self.state),
                "Max MTU": utils.translate_mtu(self.max_mtu),
                "Active MTU": utils.translate_mtu(self.active_mtu),
                "SM lid": self.sm_lid,
                "Port lid": self.lid,
                "lmc": hex(self.lmc),
                "Link layer": utils.translate_link_layer(self.link_layer),
                "Max message size": hex(self.max_msg_sz),
                "Port cap flags": utils.translate_port_cap_flags(self.port_cap_flags),
                "Port cap flags 2": utils.translate_port_cap_flags2(self.port_cap_flags2),
                "max VL num": self.max_vl_num,
                "Bad Pkey counter": self.bad_pkey_cntr,
                "Qkey violations counter": self.qkey_viol_cntr,
                "GID table len": self.gid_tbl_len,
                "Pkey table len": self.pkey_tbl_len,
                "SM sl": self.sm_sl,
                "Subnet timeout": self.subnet_timeout,
                "Init type reply": self.init_type_reply,
                "Active width": utils.width_to_str(self.active_width),
                "Active speed": utils.speed_to_str(self.active_speed, self.active_speed_ex),
                "Phys state": utils.phys_state_to_str(self.phys_state),
                "Flags": self.flags,
            },
            24,
        )
