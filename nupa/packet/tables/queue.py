# SPDX-License-Identifier: BSD-3-Clause
"""Layouts of queue entries in captures.

The engine's own rings are private and change; this format is public and stable.  Names and numbers
of opcodes, flags and statuses are those of the verbs (infiniband/verbs.h).
"""

from __future__ import annotations

from enum import IntEnum

from nupa.packet.tables.layout import Field, Layout, reserved

FORMAT = 1


class Queue(IntEnum):
    """The queue of an entry, or of a doorbell."""

    SEND = 0
    RECEIVE = 1
    SHARED_RECEIVE = 2
    COMPLETION = 3


class SegmentType(IntEnum):
    """The type of a segment, a part of a WQE behind its control part."""

    REMOTE = 1
    ATOMIC = 2
    DATAGRAM = 3
    XRC = 4
    BIND = 5
    DATA = 6
    INLINE = 7


QUEUES: dict[int, str] = {
    Queue.SEND: "SQ",
    Queue.RECEIVE: "RQ",
    Queue.SHARED_RECEIVE: "SRQ",
    Queue.COMPLETION: "CQ",
}
SEGMENTS: dict[int, str] = {
    SegmentType.REMOTE: "remote address",
    SegmentType.ATOMIC: "atomic operands",
    SegmentType.DATAGRAM: "datagram address",
    SegmentType.XRC: "XRC",
    SegmentType.BIND: "bind memory window",
    SegmentType.DATA: "data",
    SegmentType.INLINE: "inline data",
}
# enum ibv_wr_opcode; 0 for a receive
WR_OPCODES = {
    0: "RDMA_WRITE",
    1: "RDMA_WRITE_WITH_IMM",
    2: "SEND",
    3: "SEND_WITH_IMM",
    4: "RDMA_READ",
    5: "ATOMIC_CMP_AND_SWP",
    6: "ATOMIC_FETCH_AND_ADD",
    7: "LOCAL_INV",
    8: "BIND_MW",
    9: "SEND_WITH_INV",
    10: "TSO",
    11: "DRIVER1",
    14: "FLUSH",
    15: "ATOMIC_WRITE",
}
# enum ibv_send_flags, by bit
SEND_FLAGS = {0: "fence", 1: "signaled", 2: "solicited", 3: "inline", 4: "ip_csum"}
# enum ibv_qp_type
QP_TYPES = {0: "none", 2: "RC", 3: "UC", 4: "UD", 8: "RAW_PACKET", 9: "XRC_SEND", 10: "XRC_RECV"}
# enum ibv_wc_status
WC_STATUSES = {
    0: "SUCCESS",
    1: "LOC_LEN_ERR",
    2: "LOC_QP_OP_ERR",
    3: "LOC_EEC_OP_ERR",
    4: "LOC_PROT_ERR",
    5: "WR_FLUSH_ERR",
    6: "MW_BIND_ERR",
    7: "BAD_RESP_ERR",
    8: "LOC_ACCESS_ERR",
    9: "REM_INV_REQ_ERR",
    10: "REM_ACCESS_ERR",
    11: "REM_OP_ERR",
    12: "RETRY_EXC_ERR",
    13: "RNR_RETRY_EXC_ERR",
    14: "LOC_RDD_VIOL_ERR",
    15: "REM_INV_RD_REQ_ERR",
    16: "REM_ABORT_ERR",
    17: "INV_EECN_ERR",
    18: "INV_EEC_STATE_ERR",
    19: "FATAL_ERR",
    20: "RESP_TIMEOUT_ERR",
    21: "GENERAL_ERR",
    22: "TM_ERR",
    23: "TM_RNDV_INCOMPLETE",
}
# enum ibv_wc_opcode
WC_OPCODES = {
    0: "SEND",
    1: "RDMA_WRITE",
    2: "RDMA_READ",
    3: "COMP_SWAP",
    4: "FETCH_ADD",
    5: "BIND_MW",
    6: "LOCAL_INV",
    7: "TSO",
    8: "FLUSH",
    9: "ATOMIC_WRITE",
    128: "RECV",
    129: "RECV_RDMA_WITH_IMM",
    130: "TM_ADD",
    131: "TM_DEL",
    132: "TM_SYNC",
    133: "TM_RECV",
    134: "TM_NO_TAG",
    135: "DRIVER1",
    136: "DRIVER2",
    137: "DRIVER3",
}
# enum ibv_wc_flags, by bit
WC_FLAGS = {
    0: "grh",
    1: "with_imm",
    2: "ip_csum_ok",
    3: "with_inv",
    4: "tm_sync_req",
    5: "tm_match",
    6: "tm_data_valid",
}
DOORBELL_FLAGS = {0: "solicited_only", 1: "wakes"}

_FORMAT = Field("format", 8, "Format of the entry", default=FORMAT)
_WR_ID = Field("wr_id", 64, "wr_id, the program's", hex=True)

DOORBELL = Layout(
    "Doorbell",
    "nupa.doorbell",
    "Doorbell",
    "docs/packet.md",
    _FORMAT,
    Field("queue", 8, "Queue; CQ: a notification is requested", QUEUES),
    Field("flags", 16, "Flags", DOORBELL_FLAGS, flags=True),
    Field("number", 32, "Number of the QP, SRQ or CQ", hex=True),
    Field("index", 64, "Entries posted (CQ: polled) so far"),
)
WQE = Layout(
    "WQE",
    "nupa.wqe",
    "WQE",
    "docs/packet.md",
    _FORMAT,
    Field("queue", 8, "Queue", QUEUES),
    Field("opcode", 8, "Opcode", WR_OPCODES),
    Field("qp_type", 8, "QP type", QP_TYPES),
    Field("flags", 16, "Send flags", SEND_FLAGS, flags=True),
    Field("bytes", 16, "Length of the entry with its segments"),
    Field("number", 32, "Number of the QP or SRQ", hex=True),
    Field("imm", 32, "Immediate data, or the rkey to invalidate", hex=True),
    Field("index", 64, "Place in its queue, counted from 0"),
    _WR_ID,
    Field("length", 32, "Bytes of payload; of a receive, bytes of its buffers"),
    Field("psn", 32, "First PSN; 0xffffffff: not known yet", hex=True, default=0xFFFFFFFF),
)
CQE = Layout(
    "CQE",
    "nupa.cqe",
    "CQE",
    "docs/packet.md",
    _FORMAT,
    Field("status", 8, "Status", WC_STATUSES),
    Field("opcode", 8, "Opcode", WC_OPCODES),
    Field("flags", 8, "Flags", WC_FLAGS, flags=True),
    Field("cqn", 32, "Number of the CQ", hex=True),
    Field("qpn", 32, "Number of the QP", hex=True),
    Field("src_qp", 32, "Sender's QP (UD)", hex=True),
    _WR_ID,
    Field("index", 64, "Place in its queue, counted from 0"),
    Field("byte_len", 32, "Bytes received or read"),
    Field("imm", 32, "Immediate data, or the rkey that was invalidated", hex=True),
    Field("slid", 16, "Sender's LID"),
    Field("sl", 8, "Service level"),
    Field("dlid_path_bits", 8, "Path bits of the source LID"),
    Field("pkey_index", 16, "P_Key, by its index"),
    reserved("reserved1", 16),
    Field("vendor_err", 32, "Vendor's error", hex=True),
    reserved("reserved2", 32),
    Field("timestamp", 64, "Time of completion, ns; 0: not taken"),
)


def _segment(kind: SegmentType, name: str, abbrev: str, text: str, *fields: Field) -> Layout:
    bits = 32 + sum(field.bits for field in fields)
    return Layout(
        name,
        f"nupa.wqe.{abbrev}",
        text,
        "docs/packet.md",
        Field("type", 8, "Type of the segment", SEGMENTS, default=kind),
        reserved("reserved", 8),
        Field("bytes", 16, "Length of the segment with this header", default=bits // 8),
        *fields,
    )


SEGMENT_LAYOUTS = {
    SegmentType.REMOTE: _segment(
        SegmentType.REMOTE,
        "RemoteSegment",
        "remote",
        "Remote address",
        Field("address", 64, "Remote address", hex=True),
        Field("rkey", 32, "rkey", hex=True),
    ),
    SegmentType.ATOMIC: _segment(
        SegmentType.ATOMIC,
        "AtomicSegment",
        "atomic",
        "Atomic operands",
        Field("compare_add", 64, "Compared with, or added", hex=True),
        Field("swap", 64, "Swapped in", hex=True),
    ),
    SegmentType.DATAGRAM: _segment(
        SegmentType.DATAGRAM,
        "DatagramSegment",
        "datagram",
        "Datagram address",
        Field("dest_qpn", 32, "Destination QP", hex=True),
        Field("qkey", 32, "Q_Key", hex=True),
        Field("dlid", 16, "Destination LID"),
        Field("sl", 8, "Service level"),
        Field("src_path_bits", 8, "Path bits of the source LID"),
        Field("is_global", 8, "Whether there is a GRH"),
        Field("sgid_index", 8, "Source GID, by its index"),
        Field("hop_limit", 8, "Hop limit"),
        Field("traffic_class", 8, "Traffic class"),
        Field("flow_label", 32, "Flow label", hex=True),
        Field("dgid", 128, "Destination GID", kind="ipv6"),
    ),
    SegmentType.XRC: _segment(
        SegmentType.XRC,
        "XrcSegment",
        "xrc",
        "XRC",
        Field("srqn", 32, "Number of the SRQ", hex=True),
    ),
    SegmentType.BIND: _segment(
        SegmentType.BIND,
        "BindSegment",
        "bind",
        "Bind memory window",
        Field("rkey", 32, "rkey of the window", hex=True),
        Field("lkey", 32, "lkey of the region; 0: none", hex=True),
        Field("access", 32, "Access flags", hex=True),
        Field("address", 64, "Start of the window", hex=True),
        Field("length", 64, "Length of the window in bytes"),
    ),
    SegmentType.DATA: _segment(
        SegmentType.DATA,
        "DataSegment",
        "data",
        "Data",
        Field("address", 64, "Address", hex=True),
        Field("length", 32, "Length in bytes"),
        Field("lkey", 32, "lkey", hex=True),
    ),
    SegmentType.INLINE: _segment(SegmentType.INLINE, "InlineSegment", "inline", "Inline data"),
}
SEGMENT_HEADER_BYTES = 4
LAYOUTS = (DOORBELL, WQE, CQE, *SEGMENT_LAYOUTS.values())
