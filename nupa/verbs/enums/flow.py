# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: N801
"""Constants of features that this device lacks: work queues, flows, tag matching."""

from enum import IntEnum, IntFlag


class ibv_wq_type(IntEnum):
    """Kinds of work queues."""

    IBV_WQT_RQ = 0


class ibv_wq_state(IntEnum):
    """States of a work queue."""

    IBV_WQS_RESET = 0
    IBV_WQS_RDY = 1
    IBV_WQS_ERR = 2
    IBV_WQS_UNKNOWN = 3


class ibv_counter_description(IntEnum):
    """Units of a flow counter."""

    IBV_COUNTER_PACKETS = 0
    IBV_COUNTER_BYTES = 1


class ibv_raw_packet_caps(IntFlag):
    """ibv_device_attr_ex.raw_packet_caps."""

    IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1 << 0
    IBV_RAW_PACKET_CAP_SCATTER_FCS = 1 << 1
    IBV_RAW_PACKET_CAP_IP_CSUM = 1 << 2
    IBV_RAW_PACKET_CAP_DELAY_DROP = 1 << 3


class ibv_wq_init_attr_mask(IntFlag):
    """ibv_wq_init_attr.comp_mask."""

    IBV_WQ_INIT_ATTR_FLAGS = 1 << 0


class ibv_wq_flags(IntFlag):
    """ibv_wq_init_attr.create_flags."""

    IBV_WQ_FLAGS_CVLAN_STRIPPING = 1 << 0
    IBV_WQ_FLAGS_SCATTER_FCS = 1 << 1
    IBV_WQ_FLAGS_DELAY_DROP = 1 << 2
    IBV_WQ_FLAGS_PCI_WRITE_END_PADDING = 1 << 3


class ibv_wq_attr_mask(IntFlag):
    """ibv_wq_attr.attr_mask."""

    IBV_WQ_ATTR_STATE = 1 << 0
    IBV_WQ_ATTR_CURR_STATE = 1 << 1
    IBV_WQ_ATTR_FLAGS = 1 << 2


class ibv_rx_hash_function_flags(IntFlag):
    """Hash functions of receive side scaling."""

    IBV_RX_HASH_FUNC_TOEPLITZ = 1 << 0


class ibv_rx_hash_fields(IntFlag):
    """Header fields that receive side scaling hashes."""

    IBV_RX_HASH_SRC_IPV4 = 1 << 0
    IBV_RX_HASH_DST_IPV4 = 1 << 1
    IBV_RX_HASH_SRC_IPV6 = 1 << 2
    IBV_RX_HASH_DST_IPV6 = 1 << 3
    IBV_RX_HASH_SRC_PORT_TCP = 1 << 4
    IBV_RX_HASH_DST_PORT_TCP = 1 << 5
    IBV_RX_HASH_SRC_PORT_UDP = 1 << 6
    IBV_RX_HASH_DST_PORT_UDP = 1 << 7


class ibv_flow_flags(IntFlag):
    """ibv_flow_attr.flags."""

    IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1
    IBV_FLOW_ATTR_FLAGS_EGRESS = 1 << 2


class ibv_flow_attr_type(IntEnum):
    """ibv_flow_attr.type."""

    IBV_FLOW_ATTR_NORMAL = 0
    IBV_FLOW_ATTR_ALL_DEFAULT = 1
    IBV_FLOW_ATTR_MC_DEFAULT = 2
    IBV_FLOW_ATTR_SNIFFER = 3


class ibv_read_counters_flags(IntFlag):
    """Flags of ibv_read_counters."""

    IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1 << 0


class ibv_flow_spec_type(IntEnum):
    """Matches and actions of a flow."""

    IBV_FLOW_SPEC_ETH = 0x20
    IBV_FLOW_SPEC_IPV4 = 0x30
    IBV_FLOW_SPEC_IPV6 = 0x31
    IBV_FLOW_SPEC_IPV4_EXT = 0x32
    IBV_FLOW_SPEC_ESP = 0x34
    IBV_FLOW_SPEC_TCP = 0x40
    IBV_FLOW_SPEC_UDP = 0x41
    IBV_FLOW_SPEC_VXLAN_TUNNEL = 0x50
    IBV_FLOW_SPEC_GRE = 0x51
    IBV_FLOW_SPEC_MPLS = 0x60
    IBV_FLOW_SPEC_INNER = 0x100
    IBV_FLOW_SPEC_ACTION_TAG = 0x1000
    IBV_FLOW_SPEC_ACTION_DROP = 0x1001
    IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002
    IBV_FLOW_SPEC_ACTION_COUNT = 0x1003


class ibv_tmh_op(IntEnum):
    """Operation of a tag matching header."""

    IBV_TMH_NO_TAG = 0
    IBV_TMH_RNDV = 1
    IBV_TMH_FIN = 2
    IBV_TMH_EAGER = 3
