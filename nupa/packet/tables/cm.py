# SPDX-License-Identifier: BSD-3-Clause
"""Layouts of management datagrams (IBTA 13.4) and of the messages of connection management (12.6).

Private data follows a message up to the 256th byte of its MAD.
"""

from __future__ import annotations

from nupa.packet.tables.layout import Field, Layout, reserved

MAD_BYTES = 256
INFORMATION_BYTES = 72  # of REJ, APR and SIDR_REP

COMM_MGT = 0x07  # the class of connection management
MGMT_CLASSES = {
    0x01: "SUBN_LID_ROUTED",
    0x03: "SUBN_ADM",
    0x04: "PERF",
    0x05: "BM",
    0x06: "DEV_MGT",
    COMM_MGT: "COMM_MGT",
    0x08: "SNMP",
    0x81: "SUBN_DIRECTED_ROUTE",
}

METHODS = {
    0x01: "GET",
    0x02: "SET",
    0x03: "SEND",
    0x05: "TRAP",
    0x06: "REPORT",
    0x07: "TRAP_REPRESS",
    0x81: "GET_RESP",
    0x86: "REPORT_RESP",
}

# 12.6.3: attribute IDs of connection management
ATTRIBUTES = {
    0x10: "REQ",
    0x11: "MRA",
    0x12: "REJ",
    0x13: "REP",
    0x14: "RTU",
    0x15: "DREQ",
    0x16: "DREP",
    0x17: "SIDR_REQ",
    0x18: "SIDR_REP",
    0x19: "LAP",
    0x1A: "APR",
}

REJ_REASONS = {
    1: "NO_QP",
    2: "NO_EEC",
    3: "NO_RESOURCES",
    4: "TIMEOUT",
    5: "UNSUPPORTED",
    6: "INVALID_COMM_ID",
    7: "INVALID_COMM_INSTANCE",
    8: "INVALID_SERVICE_ID",
    9: "INVALID_TRANSPORT_TYPE",
    10: "STALE_CONN",
    11: "RDC_NOT_EXIST",
    12: "INVALID_GID",
    13: "INVALID_LID",
    14: "INVALID_SL",
    15: "INVALID_TRAFFIC_CLASS",
    16: "INVALID_HOP_LIMIT",
    17: "INVALID_PACKET_RATE",
    18: "INVALID_ALT_GID",
    19: "INVALID_ALT_LID",
    20: "INVALID_ALT_SL",
    21: "INVALID_ALT_TRAFFIC_CLASS",
    22: "INVALID_ALT_HOP_LIMIT",
    23: "INVALID_ALT_PACKET_RATE",
    24: "PORT_CM_REDIRECT",
    25: "PORT_REDIRECT",
    26: "INVALID_MTU",
    27: "INSUFFICIENT_RESP_RESOURCES",
    28: "CONSUMER_DEFINED",
    29: "INVALID_RNR_RETRY",
    30: "DUPLICATE_LOCAL_COMM_ID",
    31: "INVALID_CLASS_VERSION",
    32: "INVALID_FLOW_LABEL",
    33: "INVALID_ALT_FLOW_LABEL",
}

_AR_STATUSES = {
    0: "SUCCESS",
    1: "INVALID_COMM_ID",
    2: "UNSUPPORTED",
    3: "REJECT",
    4: "REDIRECT",
    5: "IS_CURRENT",
    6: "INVALID_QPN_EECN",
    7: "INVALID_LID",
    8: "INVALID_GID",
    9: "INVALID_FLOW_LABEL",
    10: "INVALID_TRAFFIC_CLASS",
    11: "INVALID_HOP_LIMIT",
    12: "INVALID_PACKET_RATE",
    13: "INVALID_SL",
}

_SIDR_STATUSES = {
    0: "VALID_QPN",
    1: "SERVICE_ID_NOT_SUPPORTED",
    2: "REJECTED",
    3: "NO_QP",
    4: "REDIRECT",
    5: "UNSUPPORTED_VERSION",
}

_MTUS = {1: "256", 2: "512", 3: "1024", 4: "2048", 5: "4096"}

MAD = Layout(
    "MAD",
    "mad",
    "Management Datagram",
    "IBTA 13.4.3",
    Field("base_version", 8, "Base version", default=1),
    Field("mgmt_class", 8, "Management class", MGMT_CLASSES),
    Field("class_version", 8, "Class version", default=1),
    Field("method", 8, "Method", METHODS),
    Field("status", 16, "Status", hex=True),
    Field("class_specific", 16, "Class specific", hex=True),
    Field("transaction_id", 64, "Transaction ID", hex=True),
    Field("attribute_id", 16, "Attribute ID", hex=True),
    reserved("resv", 16),
    Field("attribute_modifier", 32, "Attribute modifier", hex=True),
)

_LOCAL = Field("local_comm_id", 32, "Local communication ID", hex=True)
_REMOTE = Field("remote_comm_id", 32, "Remote communication ID", hex=True)
_SERVICE = Field("service_id", 64, "Service ID", hex=True)


def _lids_and_gids(path: str) -> tuple[Field, ...]:
    return (
        Field(f"{path}_local_lid", 16, "Local port LID", hex=True),
        Field(f"{path}_remote_lid", 16, "Remote port LID", hex=True),
        Field(f"{path}_local_gid", 128, "Local port GID", kind="ipv6"),
        Field(f"{path}_remote_gid", 128, "Remote port GID", kind="ipv6"),
        Field(f"{path}_flow_label", 20, "Flow label", hex=True),
    )


def _path(path: str, *end: Field) -> tuple[Field, ...]:
    return (
        *_lids_and_gids(path),
        reserved(f"{path}_resv6", 6),
        Field(f"{path}_packet_rate", 6, "Packet rate"),
        Field(f"{path}_traffic_class", 8, "Traffic class"),
        Field(f"{path}_hop_limit", 8, "Hop limit"),
        Field(f"{path}_sl", 4, "Service level"),
        Field(f"{path}_subnet_local", 1, "Subnet local"),
        reserved(f"{path}_resv3", 3),
        Field(f"{path}_ack_timeout", 5, "Local ACK timeout"),
        *end,
    )


REQ = Layout(
    "REQ",
    "cm.req",
    "CM Connect Request",
    "IBTA 12.6.5",
    _LOCAL,
    reserved("resv4", 32),
    _SERVICE,
    Field("local_ca_guid", 64, "Local CA GUID", hex=True),
    reserved("resv24", 32),
    Field("local_qkey", 32, "Local Q_Key", hex=True),
    Field("local_qpn", 24, "Local QPN"),
    Field("responder_resources", 8, "Responder resources"),
    Field("local_eecn", 24, "Local EE context"),
    Field("initiator_depth", 8, "Initiator depth"),
    Field("remote_eecn", 24, "Remote EE context"),
    Field("remote_cm_timeout", 5, "Remote CM response timeout"),
    Field("transport_service", 2, "Transport", {0: "RC", 1: "UC", 2: "RD", 3: "EXTENDED"}),
    Field("flow_control", 1, "End-to-end flow control"),
    Field("starting_psn", 24, "Starting PSN"),
    Field("local_cm_timeout", 5, "Local CM response timeout"),
    Field("retry_count", 3, "Retry count"),
    Field("pkey", 16, "Partition key", hex=True, default=0xFFFF),
    Field("path_mtu", 4, "Path packet payload MTU", _MTUS),
    Field("rdc_exists", 1, "RDC exists"),
    Field("rnr_retry_count", 3, "RNR retry count"),
    Field("max_cm_retries", 4, "Max CM retries"),
    Field("srq", 1, "SRQ"),
    Field("extended_transport", 3, "Extended transport", {1: "XRC"}),
    *_path("primary", reserved("primary_resv3b", 3)),
    *_path("alternate", Field("sap_supported", 1, "SAP supported"), reserved("resv2", 2)),
)

MRA = Layout(
    "MRA",
    "cm.mra",
    "CM Message Receipt Acknowledgement",
    "IBTA 12.6.6",
    _LOCAL,
    _REMOTE,
    Field("message", 2, "Message received", {0: "REQ", 1: "REP", 2: "LAP"}),
    reserved("resv6", 6),
    Field("service_timeout", 5, "Service timeout"),
    reserved("resv3", 3),
)

REJ = Layout(
    "REJ",
    "cm.rej",
    "CM Reject",
    "IBTA 12.6.7",
    _LOCAL,
    _REMOTE,
    Field("message", 2, "Message rejected", {0: "REQ", 1: "REP", 2: "OTHER"}),
    reserved("resv6", 6),
    Field("information_bytes", 7, "Length of the additional information"),
    reserved("resv1", 1),
    Field("reason", 16, "Reason", REJ_REASONS),
)

REP = Layout(
    "REP",
    "cm.rep",
    "CM Connect Reply",
    "IBTA 12.6.8",
    _LOCAL,
    _REMOTE,
    Field("local_qkey", 32, "Local Q_Key", hex=True),
    Field("local_qpn", 24, "Local QPN"),
    reserved("resv15", 8),
    Field("local_eecn", 24, "Local EE context"),
    reserved("resv19", 8),
    Field("starting_psn", 24, "Starting PSN"),
    reserved("resv23", 8),
    Field("responder_resources", 8, "Responder resources"),
    Field("initiator_depth", 8, "Initiator depth"),
    Field("target_ack_delay", 5, "Target ACK delay"),
    Field("failover_accepted", 2, "Failover accepted"),
    Field("flow_control", 1, "End-to-end flow control"),
    Field("rnr_retry_count", 3, "RNR retry count"),
    Field("srq", 1, "SRQ"),
    reserved("resv4", 4),
    Field("local_ca_guid", 64, "Local CA GUID", hex=True),
)

RTU = Layout("RTU", "cm.rtu", "CM Ready To Use", "IBTA 12.6.9", _LOCAL, _REMOTE)

DREQ = Layout(
    "DREQ",
    "cm.dreq",
    "CM Disconnect Request",
    "IBTA 12.6.10",
    _LOCAL,
    _REMOTE,
    Field("remote_qpn", 24, "Remote QPN or EE context"),
    reserved("resv8", 8),
)

DREP = Layout("DREP", "cm.drep", "CM Disconnect Reply", "IBTA 12.6.11", _LOCAL, _REMOTE)

LAP = Layout(
    "LAP",
    "cm.lap",
    "CM Load Alternate Path",
    "IBTA 12.8.1",
    _LOCAL,
    _REMOTE,
    reserved("resv8", 32),
    Field("remote_qpn", 24, "Remote QPN or EE context"),
    Field("remote_cm_timeout", 5, "Remote CM response timeout"),
    reserved("resv3", 3),
    reserved("resv16", 32),
    *_lids_and_gids("alternate"),
    reserved("alternate_resv4", 4),
    Field("alternate_traffic_class", 8, "Traffic class"),
    Field("alternate_hop_limit", 8, "Hop limit"),
    reserved("alternate_resv2", 2),
    Field("alternate_packet_rate", 6, "Packet rate"),
    Field("alternate_sl", 4, "Service level"),
    Field("alternate_subnet_local", 1, "Subnet local"),
    reserved("alternate_resv3", 3),
    Field("alternate_ack_timeout", 5, "Local ACK timeout"),
    reserved("alternate_resv3b", 3),
)

APR = Layout(
    "APR",
    "cm.apr",
    "CM Alternate Path Response",
    "IBTA 12.8.2",
    _LOCAL,
    _REMOTE,
    Field("information_bytes", 8, "Length of the additional information"),
    Field("status", 8, "Status", _AR_STATUSES),
    reserved("resv16", 16),
)

SIDR_REQ = Layout(
    "SIDR_REQ",
    "cm.sidr_req",
    "CM Service ID Resolution Request",
    "IBTA 12.11.1",
    Field("request_id", 32, "Request ID", hex=True),
    Field("pkey", 16, "Partition key", hex=True, default=0xFFFF),
    reserved("resv16", 16),
    _SERVICE,
)

SIDR_REP = Layout(
    "SIDR_REP",
    "cm.sidr_rep",
    "CM Service ID Resolution Response",
    "IBTA 12.11.2",
    Field("request_id", 32, "Request ID", hex=True),
    Field("status", 8, "Status", _SIDR_STATUSES),
    Field("information_bytes", 8, "Length of the additional information"),
    reserved("resv16", 16),
    Field("qpn", 24, "QPN"),
    reserved("resv8", 8),
    _SERVICE,
    Field("qkey", 32, "Q_Key", hex=True),
)

# Annex A11: what private data begins with where the service ID is made from an IP port
IP_SERVICE_PREFIX = 1  # bits 63-24 of the service ID
IPCM = Layout(
    "IPCM",
    "cm.ip_cm",
    "IP addressing of a CM request",
    "IBTA A11.4",
    Field("major", 4, "Major version"),
    Field("minor", 4, "Minor version"),
    Field("ip_version", 4, "IP version", default=4),
    reserved("resv4", 4),
    Field("source_port", 16, "Source port"),
    Field("source", 128, "Source address", kind="ipv6"),
    Field("destination", 128, "Destination address", kind="ipv6"),
)
