# SPDX-License-Identifier: BSD-3-Clause
"""The fields of packets by name, for filters and `nupa capture --json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Literal, NamedTuple

from nupa.packet.decode import fast
from nupa.packet.decode import records as record_columns
from nupa.packet.decode.fast import Header
from nupa.packet.tables import cm as cm_tables
from nupa.packet.tables import cxl_cache as cache_tables
from nupa.packet.tables import cxl_mem as cxl_tables
from nupa.packet.tables import ip as ip_tables
from nupa.packet.tables import opcodes, record
from nupa.packet.tables import pcie as pcie_tables
from nupa.packet.tables import queue as queue_tables

Type = Literal["number", "hex", "flag", "name", "address"]


class Field(NamedTuple):
    """A field of packets.

    *code*: a Python expression over columns of a View.
    *when*: an expression that is true for packets that have the field; for others every comparison
    is false.
    *values*: by name.
    """

    name: str
    code: str
    when: str
    text: str
    type: Type = "number"
    values: Mapping[str, int] = {}


def plain(name: str) -> str:
    """Returns a value's name as filters write it: `PCIe TLP` is pcie_tlp."""
    return "".join(c if c.isalnum() else "_" for c in name).lower()


def _names(table: Mapping[int, str]) -> dict[str, int]:
    return {name: value for value, name in table.items()}


def _enum(values: Iterable[IntEnum]) -> dict[str, int]:
    return {value.name.lower(): int(value) for value in values}


def _having(header: Header) -> str:
    return f"h_headers & {int(header)}"


def _bth(name: str, flag: fast.BthFlag, text: str) -> Field:
    return Field(name, f"h_bth_flags >> {flag.bit_length() - 1} & 1", _TRANSPORT, text, "flag")


def _flag(flag: record.Flag, text: str) -> Field:
    name = str(flag.name).lower()
    shift = flag.bit_length() - 1
    return Field(name, f"(n_flags or m_flags) >> {shift} & 1", "", text, "flag")


_TRANSPORT = f"h_layer == {int(fast.Layer.TRANSPORT)}"
_LINK = f"h_layer >= {int(fast.Layer.LINK)}"
_NETWORK = f"h_layer >= {int(fast.Layer.NETWORK)}"
_PORTS = f"h_protocol in ({int(ip_tables.IpProtocol.TCP)}, {int(ip_tables.IpProtocol.UDP)})"
_GSI = f"{_TRANSPORT} and h_dqpn == 1 and h_mad_class"
_NATIVE = "h_dlid or h_slid"
_IS_NUPA = f"n_fault != {int(record_columns.RecordFault.LINK)}"
_TLP, _CXL = f"n_kind == {record.Kind.PCIE_TLP:d}", f"n_kind == {record.Kind.CXL_MEM:d}"
_CACHE = f"n_kind == {record.Kind.CXL_CACHE:d}"
_WQE, _CQE = f"n_kind == {record.Kind.WQE:d}", f"n_kind == {record.Kind.CQE:d}"
_QUEUE = f"{record.Kind.DOORBELL:d} <= n_kind <= {record.Kind.CQE:d}"
_LEVEL = f"n_level or ({record.Level.TRANSPORT:d} if {_TRANSPORT} else {record.Level.NET:d})"
_RETH = f"h_headers & {int(Header.RETH | Header.AtomicETH)}"
_RKEY = f"h_headers & {int(Header.RETH | Header.AtomicETH | Header.IETH)}"

_TLP_TYPES = {
    name: fmt << 5 | kind
    for (fmt, kind), name in pcie_tables.TYPES.items()
    if not name.startswith("Msg")  # several types have this name
}
_CXL_OPCODES = {
    name: channel << 4 | code
    for channel, names in cxl_tables.OPCODES.items()
    for code, name in names.items()
}
_CACHE_OPCODES = {
    cache_tables.name_of(channel, code): channel << 5 | code
    for channel, names in cache_tables.OPCODES.items()
    for code in names or (0,)
}
_MESI = _names(cache_tables.STATES)
_DIRECTIONS = _names(record.DIRECTIONS)
_QUEUES = _names(queue_tables.QUEUES)
_WR_OPCODES, _WC_OPCODES = _names(queue_tables.WR_OPCODES), _names(queue_tables.WC_OPCODES)
_WC_STATUSES = _names(queue_tables.WC_STATUSES)
_ETHERTYPES = {plain(name): value for value, name in ip_tables.ETHERTYPES.items()}
_PROTOCOLS = {plain(name): value for value, name in ip_tables.PROTOCOLS.items()}
_SECTIONS: dict[str, tuple[Field, ...]] = {
    "Every packet": (
        Field("level", _LEVEL, "", "layer of the stack at which it was recorded", "number",
              _enum(record.Level)),
        Field("port", "m_port", "", "the port, by its name: host0/1", "name"),
        Field("host", "m_host", "", "the host (or switch) of that port", "name"),
        Field("direction", "r_flags & 3", "", "seen from that port", "number", _DIRECTIONS),
        Field("transfer", "r_packet_id or n_transfer", "", "one at all levels; 0: none", "hex"),
        Field("ts_ns", "r_ts_ns", "", "time, ns since 1970"),
        Field("original_bytes", "r_original_bytes", "", "length of the packet"),
        Field("captured_bytes", "r_captured_bytes", "", "length of what was captured"),
        _flag(record.Flag.FIRST, "NUPA's records: first of its transfer at its level"),
        _flag(record.Flag.LAST, "NUPA's records: last of it"),
        _flag(record.Flag.RETRY, "sent again"),
        _flag(record.Flag.CORRUPT, "had a wrong CRC on the link"),
        _flag(record.Flag.POISON, "its data is poisoned"),
        _flag(record.Flag.DROPPED, "never arrived"),
        _flag(record.Flag.DUPLICATE, "arrived twice"),
        _flag(record.Flag.DELAYED, "was delayed"),
        _flag(record.Flag.INJECTED, "injected by a program"),
        _flag(record.Flag.REPLAYED, "replayed from a file"),
    ),
    "Level transport: BTH and extended headers": (
        Field("opcode", "h_opcode", _TRANSPORT, "RC_SEND_ONLY, …", "hex", opcodes.CODES),
        Field("dqpn", "h_dqpn", _TRANSPORT, "destination QP", "hex"),
        Field("psn", "h_psn", _TRANSPORT, "packet sequence number"),
        Field("pkey", "h_pkey", _TRANSPORT, "P_Key", "hex"),
        _bth("ackreq", fast.BthFlag.ACKREQ, "asks for an acknowledgement"),
        _bth("solicited", fast.BthFlag.SOLICITED, "solicited event"),
        _bth("migreq", fast.BthFlag.MIGREQ, "migration state"),
        _bth("fecn", fast.BthFlag.FECN, "congestion on the way"),
        _bth("becn", fast.BthFlag.BECN, "congestion on the way back"),
        Field("padcount", "h_padcount", _TRANSPORT, "bytes of padding"),
        Field("payload_bytes", "h_payload_bytes", _TRANSPORT, "captured bytes of payload"),
        Field("va", "h_va", _RETH, "RETH, AtomicETH: remote address", "hex"),
        Field("rkey", "h_rkey", _RKEY, "RETH, AtomicETH, IETH: remote key", "hex"),
        Field("dma_bytes", "h_dma_bytes", _having(Header.RETH), "RETH: length"),
        Field("syndrome", "h_syndrome", _having(Header.AETH), "AETH: from 0x60 on a NAK", "hex"),
        Field("msn", "h_msn", _having(Header.AETH), "AETH: message sequence number"),
        Field("swap", "h_swap", _having(Header.AtomicETH), "AtomicETH: to swap in or add", "hex"),
        Field("compare", "h_compare", _having(Header.AtomicETH), "AtomicETH: compared with", "hex"),
        Field("original", "h_original", _having(Header.AtomicAckETH), "AtomicAckETH", "hex"),
        Field("imm", "h_imm", _having(Header.ImmDt), "immediate data", "hex"),
        Field("qkey", "h_qkey", _having(Header.DETH), "DETH: Q_Key", "hex"),
        Field("source_qpn", "h_source_qpn", _having(Header.DETH), "DETH: source QP", "hex"),
        Field("xrc_srqn", "h_xrc_srqn", _having(Header.XRCETH), "XRCETH: SRQ", "hex"),
        Field("eecn", "h_eecn", _having(Header.RDETH), "RDETH: end-to-end context", "hex"),
        Field("mad_class", "h_mad_class", _GSI, "MAD", "hex", _names(cm_tables.MGMT_CLASSES)),
        Field("mad_attribute", "h_mad_attribute", _GSI, "MAD", "hex", _names(cm_tables.ATTRIBUTES)),
        Field("icrc", "h_icrc", f"{_TRANSPORT} and h_icrc_state", "as the packet has it", "hex"),
        Field("icrc_state", "h_icrc_state", _TRANSPORT, "is it right", "number", _enum(fast.Icrc)),
    ),
    "Ethernet and IP, of levels transport and net": (
        Field("source", "m_source", _NETWORK, 'address: source == "10.0.0.1"', "address"),
        Field("destination", "m_destination", _NETWORK, "address", "address"),
        Field("source_port", "h_source_port", _PORTS, "of TCP or UDP"),
        Field("destination_port", "h_destination_port", _PORTS, "of TCP or UDP"),
        Field("protocol", "h_protocol", _NETWORK, "behind the IP header", "number", _PROTOCOLS),
        Field("ip_version", "h_ip_version", _NETWORK, "4 or 6; a GRH counts as 6"),
        Field("ethertype", "h_ethertype", _LINK, "of the Ethernet header", "hex", _ETHERTYPES),
        Field("vlan", "h_vlan", "h_vlan", "tag: priority and ID"),
        Field("dlid", "h_dlid", _NATIVE, "native InfiniBand: destination LID"),
        Field("slid", "h_slid", _NATIVE, "native InfiniBand: source LID"),
        Field("layer", "h_layer", f"not ({_IS_NUPA})", "last layer that was decoded", "number",
              _enum(fast.Layer)),
        Field("fault", "h_fault", f"not ({_IS_NUPA})", "why decoding stopped", "number",
              _enum(fast.FrameFault)),
    ),
    "Levels tlp, queue and cache: NUPA's records": (
        Field("kind", "n_kind or 6", "", "pcie_tlp, cxl_mem, cxl_cache, doorbell, wqe, cqe, …",
              "number", _enum(record.Kind)),
        Field("sequence", "n_sequence", _IS_NUPA, "which of its transfer at its level, from 0"),
        Field("address", "n_address", "n_kind in (1, 2, 4, 7)", "TLP, CXL, the line; WQE: remote",
              "hex"),
        Field("length", "n_length", "n_kind and n_kind != 6", "of data; WQE, CQE: of the work"),
        Field("tag", "n_number", "n_kind in (1, 2)", "TLP, CXL.mem", "hex"),
        Field("tlp_type", "n_code", _TLP, "MWr64, CplD, …", "hex", _TLP_TYPES),
        Field("tlp_status", "n_status", _TLP, "of a completion"),
        Field("cxl_opcode", "n_code", _CXL, "MemRd, MemData, …", "hex", _CXL_OPCODES),
        Field("cache_opcode", "n_code", _CACHE, "RdOwn, SnpInv, …", "hex", _CACHE_OPCODES),
        Field("line", "n_queue", _CACHE, "use of the line in its ring", "number",
              _names(cache_tables.LINES)),
        Field("qid", "n_number", _CACHE, "CQID of a request, UQID of a snoop", "hex"),
        Field("peer_index", "n_index", _CACHE, "the other host, by its number in the fabric"),
        Field("before", "n_states >> 12", _CACHE, "this host's cache before", "number", _MESI),
        Field("after", "n_states >> 8 & 15", _CACHE, "this host's cache after", "number", _MESI),
        Field("peer_before", "n_states >> 4 & 15", _CACHE, "the other cache", "number", _MESI),
        Field("peer_after", "n_states & 15", _CACHE, "the other cache", "number", _MESI),
        Field("qpn", "n_number", _QUEUE, "QP; of some doorbells the SRQ or CQ", "hex"),
        Field("queue", "n_queue", "n_kind in (3, 4)", "SQ, RQ, SRQ or CQ", "number", _QUEUES),
        Field("index", "n_index", _QUEUE, "place in its queue"),
        Field("wr_id", "n_wr_id", "n_kind in (4, 5)", "the program's", "hex"),
        Field("wr_opcode", "n_code", _WQE, "SEND, RDMA_WRITE, …", "number", _WR_OPCODES),
        Field("wc_opcode", "n_code", _CQE, "RECV, RDMA_READ, …", "number", _WC_OPCODES),
        Field("status", "n_status", _CQE, "SUCCESS, RETRY_EXC_ERR, …", "number", _WC_STATUSES),
        Field("port_index", "n_port", _IS_NUPA, "the port, by its number in the fabric"),
        Field("host_index", "n_host", _IS_NUPA, "the host, by its number in the fabric"),
        Field("record_fault", "n_fault", _IS_NUPA, "why it was not decoded", "number",
              _enum(record_columns.RecordFault)),
    ),
}  # fmt: skip

FIELDS: dict[str, Field] = {field.name: field for fields in _SECTIONS.values() for field in fields}


def fields_text() -> str:
    """Lists all fields, for `nupa capture --fields`."""
    lines = []
    for section, fields in _SECTIONS.items():
        lines.append(f"{section}:")
        for field in fields:
            lines.append(f"  {field.name:<18}{field.text}")
            if 0 < len(field.values) <= 12:
                lines.append(f"  {'':<18}  {', '.join(field.values)}")
        lines.append("")
    return "\n".join(lines[:-1])
