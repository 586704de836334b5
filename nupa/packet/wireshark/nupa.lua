-- SPDX-License-Identifier: BSD-3-Clause
-- Wireshark dissector of NUPA's link type: PCIe TLPs, CXL messages, queue entries.
-- `nupa dissector --install` installs it; docs/packet.md describes the format.

-- tables: begin (written by python -m nupa.packet.wireshark.tables)
local LINKTYPE_USER = 11
local VERSION = 1
local TLP_TYPES = { [0] = "MRd32", [32] = "MRd64", [1] = "MRdLk32", [33] = "MRdLk64", [64] = "MWr32", [96] = "MWr64", [2] = "IORd", [66] = "IOWr", [4] = "CfgRd0", [68] = "CfgWr0", [5] = "CfgRd1", [69] = "CfgWr1", [91] = "DMWr32", [123] = "DMWr64", [10] = "Cpl", [74] = "CplD", [11] = "CplLk", [75] = "CplDLk", [76] = "FetchAdd32", [108] = "FetchAdd64", [77] = "Swap32", [109] = "Swap64", [78] = "CAS32", [110] = "CAS64", [48] = "Msg", [49] = "Msg", [50] = "Msg", [51] = "Msg", [52] = "Msg", [53] = "Msg", [54] = "Msg", [55] = "Msg", [112] = "MsgD", [113] = "MsgD", [114] = "MsgD", [115] = "MsgD", [116] = "MsgD", [117] = "MsgD", [118] = "MsgD", [119] = "MsgD" }
local PARTIAL_WRITES = { [2] = true, [10] = true }
local ROUTING = { [0] = "to root complex", [1] = "by address", [2] = "by ID", [3] = "broadcast from root complex", [4] = "local", [5] = "gathered to root complex" }
local META_EMS = 1
local CHANNELS = { [1] = "M2SReq", [2] = "M2SRwD", [3] = "M2SBIRsp", [4] = "S2MBISnp", [5] = "S2MNDR", [6] = "S2MDRS" }
local CACHE_CHANNELS = { [1] = "D2HReq", [2] = "D2HRsp", [3] = "D2HData", [4] = "H2DReq", [5] = "H2DRsp", [6] = "H2DData" }
local SEGMENTS = { [1] = "RemoteSegment", [2] = "AtomicSegment", [3] = "DatagramSegment", [4] = "XrcSegment", [5] = "BindSegment", [6] = "DataSegment", [7] = "InlineSegment" }
-- name, bits, shift, show
local LAYOUTS = {
	Nupa = { text = "NUPA record", bytes = 24,
		{ "version", 8, 0, "nupa.version" },
		{ "header_bytes", 8, 0, "nupa.header_bytes" },
		{ "level", 8, 0, "nupa.level" },
		{ "kind", 8, 0, "nupa.kind" },
		{ "direction", 8, 0, "nupa.direction" },
		{ "reserved", 8, 0, nil },
		{ "flags", 16, 0, "nupa.flags" },
		{ "transfer", 64, 0, "nupa.transfer" },
		{ "port", 16, 0, "nupa.port" },
		{ "host", 16, 0, "nupa.host" },
		{ "sequence", 32, 0, "nupa.sequence" },
	},
	TLP = { text = "PCIe TLP", bytes = 4,
		{ "fmt", 3, 0, "nupa.tlp.fmt" },
		{ "type", 5, 0, "nupa.tlp.type" },
		{ "t9", 1, 0, "nupa.tlp.t9" },
		{ "tc", 3, 0, "nupa.tlp.tc" },
		{ "t8", 1, 0, "nupa.tlp.t8" },
		{ "attr2", 1, 0, "nupa.tlp.attr2" },
		{ "ln", 1, 0, "nupa.tlp.ln" },
		{ "th", 1, 0, "nupa.tlp.th" },
		{ "td", 1, 0, "nupa.tlp.td" },
		{ "ep", 1, 0, "nupa.tlp.ep" },
		{ "attr", 2, 0, "nupa.tlp.attr" },
		{ "at", 2, 0, "nupa.tlp.at" },
		{ "length", 10, 0, "nupa.tlp.length" },
	},
	Mem32 = { text = "Memory request, 32-bit address", bytes = 8,
		{ "requester", 16, 0, "nupa.tlp.requester" },
		{ "tag", 8, 0, "nupa.tlp.tag" },
		{ "last_be", 4, 0, "nupa.tlp.mem.last_be" },
		{ "first_be", 4, 0, "nupa.tlp.mem.first_be" },
		{ "address", 30, 2, "nupa.tlp.mem.address" },
		{ "ph", 2, 0, "nupa.tlp.mem.ph" },
	},
	Mem64 = { text = "Memory request, 64-bit address", bytes = 12,
		{ "requester", 16, 0, "nupa.tlp.requester" },
		{ "tag", 8, 0, "nupa.tlp.tag" },
		{ "last_be", 4, 0, "nupa.tlp.mem.last_be" },
		{ "first_be", 4, 0, "nupa.tlp.mem.first_be" },
		{ "address", 62, 2, "nupa.tlp.mem.address" },
		{ "ph", 2, 0, "nupa.tlp.mem.ph" },
	},
	Cpl = { text = "Completion", bytes = 8,
		{ "completer", 16, 0, "nupa.tlp.cpl.completer" },
		{ "status", 3, 0, "nupa.tlp.cpl.status" },
		{ "bcm", 1, 0, "nupa.tlp.cpl.bcm" },
		{ "byte_count", 12, 0, "nupa.tlp.cpl.byte_count" },
		{ "requester", 16, 0, "nupa.tlp.requester" },
		{ "tag", 8, 0, "nupa.tlp.tag" },
		{ "reserved", 1, 0, nil },
		{ "lower_address", 7, 0, "nupa.tlp.cpl.lower_address" },
	},
	Msg = { text = "Message", bytes = 12,
		{ "requester", 16, 0, "nupa.tlp.requester" },
		{ "tag", 8, 0, "nupa.tlp.tag" },
		{ "code", 8, 0, "nupa.tlp.msg.code" },
		{ "target", 16, 0, "nupa.tlp.msg.target" },
		{ "vendor", 16, 0, "nupa.tlp.msg.vendor" },
		{ "specific", 32, 0, "nupa.tlp.msg.specific" },
	},
	CxlMem = { text = "CXL.mem", bytes = 2,
		{ "channel", 8, 0, "nupa.cxl.channel" },
		{ "flit", 8, 0, "nupa.cxl.flit" },
	},
	M2SReq = { text = "M2S Req", bytes = 18,
		{ "valid", 1, 0, "nupa.cxl.valid" },
		{ "opcode", 4, 0, "nupa.cxl.req.opcode" },
		{ "snp_type", 3, 0, "nupa.cxl.snp_type" },
		{ "meta_field", 2, 0, "nupa.cxl.meta_field" },
		{ "meta_value", 2, 0, "nupa.cxl.meta_value" },
		{ "tc", 2, 0, "nupa.cxl.tc" },
		{ "reserved1", 2, 0, nil },
		{ "tag", 16, 0, "nupa.cxl.tag" },
		{ "ld_id", 4, 0, "nupa.cxl.ld_id" },
		{ "spid", 12, 0, "nupa.cxl.spid" },
		{ "dpid", 12, 0, "nupa.cxl.dpid" },
		{ "reserved2", 4, 0, nil },
		{ "ckid", 13, 0, "nupa.cxl.ckid" },
		{ "reserved3", 3, 0, nil },
		{ "address", 64, 0, "nupa.cxl.address" },
	},
	M2SRwD = { text = "M2S RwD", bytes = 18,
		{ "valid", 1, 0, "nupa.cxl.valid" },
		{ "opcode", 4, 0, "nupa.cxl.rwd.opcode" },
		{ "snp_type", 3, 0, "nupa.cxl.snp_type" },
		{ "meta_field", 2, 0, "nupa.cxl.meta_field" },
		{ "meta_value", 2, 0, "nupa.cxl.meta_value" },
		{ "tc", 2, 0, "nupa.cxl.tc" },
		{ "poison", 1, 0, "nupa.cxl.media.poison" },
		{ "trp", 1, 0, "nupa.cxl.trp" },
		{ "tag", 16, 0, "nupa.cxl.tag" },
		{ "ld_id", 4, 0, "nupa.cxl.ld_id" },
		{ "spid", 12, 0, "nupa.cxl.spid" },
		{ "dpid", 12, 0, "nupa.cxl.dpid" },
		{ "reserved2", 4, 0, nil },
		{ "ckid", 13, 0, "nupa.cxl.ckid" },
		{ "reserved3", 3, 0, nil },
		{ "address", 64, 0, "nupa.cxl.address" },
	},
	M2SBIRsp = { text = "M2S BIRsp", bytes = 8,
		{ "valid", 1, 0, "nupa.cxl.valid" },
		{ "opcode", 4, 0, "nupa.cxl.birsp.opcode" },
		{ "reserved1", 3, 0, nil },
		{ "low_addr", 2, 0, "nupa.cxl.birsp.low_addr" },
		{ "reserved2", 6, 0, nil },
		{ "bi_id", 12, 0, "nupa.cxl.bi_id" },
		{ "reserved3", 4, 0, nil },
		{ "bi_tag", 12, 0, "nupa.cxl.bi_tag" },
		{ "reserved4", 4, 0, nil },
		{ "dpid", 12, 0, "nupa.cxl.dpid" },
		{ "reserved5", 4, 0, nil },
	},
	S2MBISnp = { text = "S2M BISnp", bytes = 18,
		{ "valid", 1, 0, "nupa.cxl.valid" },
		{ "opcode", 4, 0, "nupa.cxl.bisnp.opcode" },
		{ "reserved1", 3, 0, nil },
		{ "reserved2", 8, 0, nil },
		{ "bi_id", 12, 0, "nupa.cxl.bi_id" },
		{ "reserved3", 4, 0, nil },
		{ "bi_tag", 12, 0, "nupa.cxl.bi_tag" },
		{ "reserved4", 4, 0, nil },
		{ "spid", 12, 0, "nupa.cxl.spid" },
		{ "reserved5", 4, 0, nil },
		{ "dpid", 12, 0, "nupa.cxl.dpid" },
		{ "reserved6", 4, 0, nil },
		{ "address", 64, 0, "nupa.cxl.address" },
	},
	S2MNDR = { text = "S2M NDR", bytes = 6,
		{ "valid", 1, 0, "nupa.cxl.valid" },
		{ "opcode", 4, 0, "nupa.cxl.ndr.opcode" },
		{ "reserved1", 3, 0, nil },
		{ "meta_field", 2, 0, "nupa.cxl.meta_field" },
		{ "meta_value", 2, 0, "nupa.cxl.meta_value" },
		{ "dev_load", 2, 0, "nupa.cxl.dev_load" },
		{ "reserved2", 2, 0, nil },
		{ "tag", 16, 0, "nupa.cxl.tag" },
		{ "ld_id", 4, 0, "nupa.cxl.ld_id" },
		{ "dpid", 12, 0, "nupa.cxl.dpid" },
	},
	S2MDRS = { text = "S2M DRS", bytes = 6,
		{ "valid", 1, 0, "nupa.cxl.valid" },
		{ "opcode", 4, 0, "nupa.cxl.drs.opcode" },
		{ "reserved1", 3, 0, nil },
		{ "meta_field", 2, 0, "nupa.cxl.meta_field" },
		{ "meta_value", 2, 0, "nupa.cxl.meta_value" },
		{ "dev_load", 2, 0, "nupa.cxl.dev_load" },
		{ "poison", 1, 0, "nupa.cxl.media.poison" },
		{ "trp", 1, 0, "nupa.cxl.trp" },
		{ "tag", 16, 0, "nupa.cxl.tag" },
		{ "ld_id", 4, 0, "nupa.cxl.ld_id" },
		{ "dpid", 12, 0, "nupa.cxl.dpid" },
	},
	CxlCache = { text = "CXL.cache", bytes = 16,
		{ "channel", 8, 0, "nupa.cache.channel" },
		{ "flit", 8, 0, "nupa.cache.flit" },
		{ "line", 8, 0, "nupa.cache.line" },
		{ "role", 8, 0, "nupa.cache.role" },
		{ "before", 4, 0, "nupa.cache.before" },
		{ "after", 4, 0, "nupa.cache.after" },
		{ "peer_before", 4, 0, "nupa.cache.peer_before" },
		{ "peer_after", 4, 0, "nupa.cache.peer_after" },
		{ "peer", 16, 0, "nupa.cache.peer" },
		{ "at", 64, 0, "nupa.cache.at" },
	},
	D2HReq = { text = "D2H Req", bytes = 14,
		{ "valid", 1, 0, "nupa.cache.valid" },
		{ "opcode", 5, 0, "nupa.cache.req.opcode" },
		{ "nt", 1, 0, "nupa.cache.req.nt" },
		{ "reserved1", 1, 0, nil },
		{ "cqid", 12, 0, "nupa.cache.cqid" },
		{ "cache_id", 4, 0, "nupa.cache.cache_id" },
		{ "spid", 12, 0, "nupa.cache.spid" },
		{ "dpid", 12, 0, "nupa.cache.dpid" },
		{ "address", 64, 0, "nupa.cache.address" },
	},
	D2HRsp = { text = "D2H Rsp", bytes = 4,
		{ "valid", 1, 0, "nupa.cache.valid" },
		{ "opcode", 5, 0, "nupa.cache.rsp.opcode" },
		{ "reserved1", 2, 0, nil },
		{ "uqid", 12, 0, "nupa.cache.uqid" },
		{ "dpid", 12, 0, "nupa.cache.dpid" },
	},
	D2HData = { text = "D2H Data", bytes = 4,
		{ "valid", 1, 0, "nupa.cache.valid" },
		{ "chunk_valid", 1, 0, "nupa.cache.chunk_valid" },
		{ "bogus", 1, 0, "nupa.cache.data.bogus" },
		{ "poison", 1, 0, "nupa.cache.poison" },
		{ "bep", 1, 0, "nupa.cache.data.bep" },
		{ "reserved1", 3, 0, nil },
		{ "uqid", 12, 0, "nupa.cache.uqid" },
		{ "dpid", 12, 0, "nupa.cache.dpid" },
	},
	H2DReq = { text = "H2D Req", bytes = 14,
		{ "valid", 1, 0, "nupa.cache.valid" },
		{ "opcode", 3, 0, "nupa.cache.snp.opcode" },
		{ "reserved1", 4, 0, nil },
		{ "uqid", 12, 0, "nupa.cache.uqid" },
		{ "cache_id", 4, 0, "nupa.cache.cache_id" },
		{ "spid", 12, 0, "nupa.cache.spid" },
		{ "dpid", 12, 0, "nupa.cache.dpid" },
		{ "address", 64, 0, "nupa.cache.address" },
	},
	H2DRsp = { text = "H2D Rsp", bytes = 6,
		{ "valid", 1, 0, "nupa.cache.valid" },
		{ "opcode", 4, 0, "nupa.cache.go.opcode" },
		{ "rsp_pre", 2, 0, "nupa.cache.go.rsp_pre" },
		{ "reserved1", 1, 0, nil },
		{ "rsp_data", 12, 0, "nupa.cache.go.rsp_data" },
		{ "cache_id", 4, 0, "nupa.cache.cache_id" },
		{ "cqid", 12, 0, "nupa.cache.cqid" },
		{ "dpid", 12, 0, "nupa.cache.dpid" },
	},
	H2DData = { text = "H2D Data", bytes = 4,
		{ "valid", 1, 0, "nupa.cache.valid" },
		{ "chunk_valid", 1, 0, "nupa.cache.chunk_valid" },
		{ "poison", 1, 0, "nupa.cache.poison" },
		{ "go_err", 1, 0, "nupa.cache.fill.go_err" },
		{ "cache_id", 4, 0, "nupa.cache.cache_id" },
		{ "cqid", 12, 0, "nupa.cache.cqid" },
		{ "dpid", 12, 0, "nupa.cache.dpid" },
	},
	Doorbell = { text = "Doorbell", bytes = 16,
		{ "format", 8, 0, "nupa.doorbell.format" },
		{ "queue", 8, 0, "nupa.doorbell.queue" },
		{ "flags", 16, 0, "nupa.doorbell.flags" },
		{ "number", 32, 0, "nupa.doorbell.number" },
		{ "index", 64, 0, "nupa.doorbell.index" },
	},
	WQE = { text = "WQE", bytes = 40,
		{ "format", 8, 0, "nupa.wqe.format" },
		{ "queue", 8, 0, "nupa.wqe.queue" },
		{ "opcode", 8, 0, "nupa.wqe.opcode" },
		{ "qp_type", 8, 0, "nupa.wqe.qp_type" },
		{ "flags", 16, 0, "nupa.wqe.flags" },
		{ "bytes", 16, 0, "nupa.wqe.bytes" },
		{ "number", 32, 0, "nupa.wqe.number" },
		{ "imm", 32, 0, "nupa.wqe.imm" },
		{ "index", 64, 0, "nupa.wqe.index" },
		{ "wr_id", 64, 0, "nupa.wqe.wr_id" },
		{ "length", 32, 0, "nupa.wqe.length" },
		{ "psn", 32, 0, "nupa.wqe.psn" },
	},
	CQE = { text = "CQE", bytes = 64,
		{ "format", 8, 0, "nupa.cqe.format" },
		{ "status", 8, 0, "nupa.cqe.status" },
		{ "opcode", 8, 0, "nupa.cqe.opcode" },
		{ "flags", 8, 0, "nupa.cqe.flags" },
		{ "cqn", 32, 0, "nupa.cqe.cqn" },
		{ "qpn", 32, 0, "nupa.cqe.qpn" },
		{ "src_qp", 32, 0, "nupa.cqe.src_qp" },
		{ "wr_id", 64, 0, "nupa.cqe.wr_id" },
		{ "index", 64, 0, "nupa.cqe.index" },
		{ "byte_len", 32, 0, "nupa.cqe.byte_len" },
		{ "imm", 32, 0, "nupa.cqe.imm" },
		{ "slid", 16, 0, "nupa.cqe.slid" },
		{ "sl", 8, 0, "nupa.cqe.sl" },
		{ "dlid_path_bits", 8, 0, "nupa.cqe.dlid_path_bits" },
		{ "pkey_index", 16, 0, "nupa.cqe.pkey_index" },
		{ "reserved1", 16, 0, nil },
		{ "vendor_err", 32, 0, "nupa.cqe.vendor_err" },
		{ "reserved2", 32, 0, nil },
		{ "timestamp", 64, 0, "nupa.cqe.timestamp" },
	},
	RemoteSegment = { text = "Remote address", bytes = 16,
		{ "type", 8, 0, "nupa.wqe.remote.type" },
		{ "reserved", 8, 0, nil },
		{ "bytes", 16, 0, "nupa.wqe.remote.bytes" },
		{ "address", 64, 0, "nupa.wqe.remote.address" },
		{ "rkey", 32, 0, "nupa.wqe.remote.rkey" },
	},
	AtomicSegment = { text = "Atomic operands", bytes = 20,
		{ "type", 8, 0, "nupa.wqe.atomic.type" },
		{ "reserved", 8, 0, nil },
		{ "bytes", 16, 0, "nupa.wqe.atomic.bytes" },
		{ "compare_add", 64, 0, "nupa.wqe.atomic.compare_add" },
		{ "swap", 64, 0, "nupa.wqe.atomic.swap" },
	},
	DatagramSegment = { text = "Datagram address", bytes = 40,
		{ "type", 8, 0, "nupa.wqe.datagram.type" },
		{ "reserved", 8, 0, nil },
		{ "bytes", 16, 0, "nupa.wqe.datagram.bytes" },
		{ "dest_qpn", 32, 0, "nupa.wqe.datagram.dest_qpn" },
		{ "qkey", 32, 0, "nupa.wqe.datagram.qkey" },
		{ "dlid", 16, 0, "nupa.wqe.datagram.dlid" },
		{ "sl", 8, 0, "nupa.wqe.datagram.sl" },
		{ "src_path_bits", 8, 0, "nupa.wqe.datagram.src_path_bits" },
		{ "is_global", 8, 0, "nupa.wqe.datagram.is_global" },
		{ "sgid_index", 8, 0, "nupa.wqe.datagram.sgid_index" },
		{ "hop_limit", 8, 0, "nupa.wqe.datagram.hop_limit" },
		{ "traffic_class", 8, 0, "nupa.wqe.datagram.traffic_class" },
		{ "flow_label", 32, 0, "nupa.wqe.datagram.flow_label" },
		{ "dgid", 128, 0, "nupa.wqe.datagram.dgid" },
	},
	XrcSegment = { text = "XRC", bytes = 8,
		{ "type", 8, 0, "nupa.wqe.xrc.type" },
		{ "reserved", 8, 0, nil },
		{ "bytes", 16, 0, "nupa.wqe.xrc.bytes" },
		{ "srqn", 32, 0, "nupa.wqe.xrc.srqn" },
	},
	BindSegment = { text = "Bind memory window", bytes = 32,
		{ "type", 8, 0, "nupa.wqe.bind.type" },
		{ "reserved", 8, 0, nil },
		{ "bytes", 16, 0, "nupa.wqe.bind.bytes" },
		{ "rkey", 32, 0, "nupa.wqe.bind.rkey" },
		{ "lkey", 32, 0, "nupa.wqe.bind.lkey" },
		{ "access", 32, 0, "nupa.wqe.bind.access" },
		{ "address", 64, 0, "nupa.wqe.bind.address" },
		{ "length", 64, 0, "nupa.wqe.bind.length" },
	},
	DataSegment = { text = "Data", bytes = 20,
		{ "type", 8, 0, "nupa.wqe.data.type" },
		{ "reserved", 8, 0, nil },
		{ "bytes", 16, 0, "nupa.wqe.data.bytes" },
		{ "address", 64, 0, "nupa.wqe.data.address" },
		{ "length", 32, 0, "nupa.wqe.data.length" },
		{ "lkey", 32, 0, "nupa.wqe.data.lkey" },
	},
	InlineSegment = { text = "Inline data", bytes = 4,
		{ "type", 8, 0, "nupa.wqe.inline.type" },
		{ "reserved", 8, 0, nil },
		{ "bytes", 16, 0, "nupa.wqe.inline.bytes" },
	},
}
-- text, bits (with those shifted in), base, names, names of bits
local FIELDS = {
	["nupa.version"] = { "Version of the format", 8, "dec", nil, nil },
	["nupa.header_bytes"] = { "Length of the header", 8, "dec", nil, nil },
	["nupa.level"] = { "Level", 8, "dec", { [1] = "tlp", [2] = "queue", [3] = "transport", [4] = "net", [5] = "cache" }, nil },
	["nupa.kind"] = { "Kind of the data that follows", 8, "dec", { [1] = "PCIe TLP", [2] = "CXL.mem", [3] = "Doorbell", [4] = "WQE", [5] = "CQE", [6] = "Ethernet", [7] = "CXL.cache" }, nil },
	["nupa.direction"] = { "Direction, seen from the host", 8, "dec", { [0] = "unknown", [1] = "inbound", [2] = "outbound" }, nil },
	["nupa.flags"] = { "Flags", 16, "hex", nil, { [0] = "first", [1] = "last", [2] = "retry", [3] = "corrupt", [4] = "poison", [5] = "dropped", [6] = "duplicate", [7] = "delayed", [8] = "injected", [9] = "replayed" } },
	["nupa.transfer"] = { "Transfer, the same at all levels; 0: none", 64, "hex", nil, nil },
	["nupa.port"] = { "Port of the fabric, by its index", 16, "dec", nil, nil },
	["nupa.host"] = { "Host of the fabric, by its index", 16, "dec", nil, nil },
	["nupa.sequence"] = { "Number of the record in its transfer at this level, from 0", 32, "dec", nil, nil },
	["nupa.tlp.fmt"] = { "Fmt", 3, "dec", { [0] = "3 DW, no data", [1] = "4 DW, no data", [2] = "3 DW, data", [3] = "4 DW, data", [4] = "prefix" }, nil },
	["nupa.tlp.type"] = { "Type", 5, "hex", nil, nil },
	["nupa.tlp.t9"] = { "Tag, bit 9", 1, "dec", nil, nil },
	["nupa.tlp.tc"] = { "Traffic class", 3, "dec", nil, nil },
	["nupa.tlp.t8"] = { "Tag, bit 8", 1, "dec", nil, nil },
	["nupa.tlp.attr2"] = { "Attr[2], ID-based ordering", 1, "dec", nil, nil },
	["nupa.tlp.ln"] = { "Lightweight notification (before PCIe 6.0)", 1, "dec", nil, nil },
	["nupa.tlp.th"] = { "TLP hints", 1, "dec", nil, nil },
	["nupa.tlp.td"] = { "A digest (ECRC) ends the TLP", 1, "dec", nil, nil },
	["nupa.tlp.ep"] = { "Data is poisoned", 1, "dec", nil, nil },
	["nupa.tlp.attr"] = { "Attr[1:0], relaxed ordering and no snoop", 2, "hex", nil, nil },
	["nupa.tlp.at"] = { "Address type", 2, "dec", { [0] = "untranslated", [1] = "translation request", [2] = "translated" }, nil },
	["nupa.tlp.length"] = { "Length in DW; 0: 1024", 10, "dec", nil, nil },
	["nupa.tlp.requester"] = { "Requester ID", 16, "hex", nil, nil },
	["nupa.tlp.tag"] = { "Tag, bits 7:0", 8, "dec", nil, nil },
	["nupa.tlp.mem.last_be"] = { "Last DW byte enables", 4, "hex", nil, nil },
	["nupa.tlp.mem.first_be"] = { "First DW byte enables", 4, "hex", nil, nil },
	["nupa.tlp.mem.address"] = { "Address", 64, "hex", nil, nil },
	["nupa.tlp.mem.ph"] = { "Processing hint (TH)", 2, "dec", { [0] = "bi-directional", [1] = "requester", [2] = "target", [3] = "target with priority" }, nil },
	["nupa.tlp.cpl.completer"] = { "Completer ID", 16, "hex", nil, nil },
	["nupa.tlp.cpl.status"] = { "Status", 3, "dec", { [0] = "Successful Completion (SC)", [1] = "Unsupported Request (UR)", [2] = "Request Retry Status (RRS)", [4] = "Completer Abort (CA)" }, nil },
	["nupa.tlp.cpl.bcm"] = { "Byte count modified (PCI-X bridges only)", 1, "dec", nil, nil },
	["nupa.tlp.cpl.byte_count"] = { "Remaining bytes, with these; 0: 4096", 12, "dec", nil, nil },
	["nupa.tlp.cpl.lower_address"] = { "Lower address of the first byte", 7, "hex", nil, nil },
	["nupa.tlp.msg.code"] = { "Message code", 8, "hex", { [0] = "Unlock", [1] = "Invalidate Request", [2] = "Invalidate Completion", [4] = "Page Request", [5] = "PRG Response", [16] = "LTR", [18] = "OBFF", [20] = "PM_Active_State_Nak", [24] = "PM_PME", [25] = "PME_Turn_Off", [27] = "PME_TO_Ack", [32] = "Assert_INTA", [33] = "Assert_INTB", [34] = "Assert_INTC", [35] = "Assert_INTD", [36] = "Deassert_INTA", [37] = "Deassert_INTB", [38] = "Deassert_INTC", [39] = "Deassert_INTD", [48] = "ERR_COR", [49] = "ERR_NONFATAL", [51] = "ERR_FATAL", [80] = "Set_Slot_Power_Limit", [82] = "PTM Request", [83] = "PTM Response", [126] = "Vendor_Defined Type 0", [127] = "Vendor_Defined Type 1" }, nil },
	["nupa.tlp.msg.target"] = { "Target ID (routed by ID)", 16, "hex", nil, nil },
	["nupa.tlp.msg.vendor"] = { "Vendor ID (vendor-defined)", 16, "hex", nil, nil },
	["nupa.tlp.msg.specific"] = { "Specific to the message", 32, "hex", nil, nil },
	["nupa.cxl.channel"] = { "Channel", 8, "dec", { [1] = "M2S Req", [2] = "M2S RwD", [3] = "M2S BIRsp", [4] = "S2M BISnp", [5] = "S2M NDR", [6] = "S2M DRS" }, nil },
	["nupa.cxl.flit"] = { "Kind of flit that it belongs to", 8, "dec", { [0] = "68B", [1] = "256B", [2] = "PBR" }, nil },
	["nupa.cxl.valid"] = { "Valid", 1, "dec", nil, nil },
	["nupa.cxl.req.opcode"] = { "Opcode", 4, "dec", { [0] = "MemInv", [1] = "MemRd", [2] = "MemRdData", [3] = "MemRdFwd", [4] = "MemWrFwd", [5] = "MemRdTEE", [6] = "MemRdDataTEE", [8] = "MemSpecRd", [9] = "MemInvNT", [10] = "MemClnEvct", [12] = "MemSpecRdTEE", [13] = "TEUpdate" }, nil },
	["nupa.cxl.snp_type"] = { "Snoop type", 3, "dec", { [0] = "No-Op", [1] = "SnpData", [2] = "SnpCur", [3] = "SnpInv" }, nil },
	["nupa.cxl.meta_field"] = { "Meta field", 2, "dec", { [0] = "Meta0-State", [1] = "Extended Meta-State", [3] = "No-Op" }, nil },
	["nupa.cxl.meta_value"] = { "Meta value", 2, "dec", { [0] = "Invalid", [1] = "Explicit No-Op", [2] = "Any", [3] = "Shared" }, nil },
	["nupa.cxl.tc"] = { "Traffic class", 2, "dec", nil, nil },
	["nupa.cxl.tag"] = { "Tag", 16, "hex", nil, nil },
	["nupa.cxl.ld_id"] = { "Logical device (68B, 256B)", 4, "dec", nil, nil },
	["nupa.cxl.spid"] = { "Source PBR ID (PBR)", 12, "hex", nil, nil },
	["nupa.cxl.dpid"] = { "Destination PBR ID (PBR)", 12, "hex", nil, nil },
	["nupa.cxl.ckid"] = { "Context key ID (256B, PBR)", 13, "hex", nil, nil },
	["nupa.cxl.address"] = { "Address; bits 51:6, in 68B Req also 5", 64, "hex", nil, nil },
	["nupa.cxl.rwd.opcode"] = { "Opcode", 4, "dec", { [1] = "MemWr", [2] = "MemWrPtl", [4] = "BIConflict", [5] = "MemRdFill", [9] = "MemWrTEE", [10] = "MemWrPtlTEE", [13] = "MemRdFillTEE" }, nil },
	["nupa.cxl.media.poison"] = { "Data is poisoned", 1, "dec", nil, nil },
	["nupa.cxl.trp"] = { "A trailer follows the data", 1, "dec", nil, nil },
	["nupa.cxl.birsp.opcode"] = { "Opcode", 4, "dec", { [0] = "BIRspI", [1] = "BIRspS", [2] = "BIRspE", [4] = "BIRspIBlk", [5] = "BIRspSBlk", [6] = "BIRspEBlk" }, nil },
	["nupa.cxl.birsp.low_addr"] = { "Address[7:6], of a Blk response's line", 2, "dec", nil, nil },
	["nupa.cxl.bi_id"] = { "BI-ID of the device (68B, 256B)", 12, "hex", nil, nil },
	["nupa.cxl.bi_tag"] = { "BI tag", 12, "hex", nil, nil },
	["nupa.cxl.bisnp.opcode"] = { "Opcode", 4, "dec", { [0] = "BISnpCur", [1] = "BISnpData", [2] = "BISnpInv", [4] = "BISnpCurBlk", [5] = "BISnpDataBlk", [6] = "BISnpInvBlk" }, nil },
	["nupa.cxl.ndr.opcode"] = { "Opcode", 4, "dec", { [0] = "Cmp", [1] = "Cmp-S", [2] = "Cmp-E", [3] = "Cmp-M", [4] = "BI-ConflictAck", [5] = "CmpTEE" }, nil },
	["nupa.cxl.dev_load"] = { "Device load", 2, "dec", { [0] = "Light Load", [1] = "Optimal Load", [2] = "Moderate Overload", [3] = "Severe Overload" }, nil },
	["nupa.cxl.drs.opcode"] = { "Opcode", 4, "dec", { [0] = "MemData", [1] = "MemData-NXM", [2] = "MemDataTEE" }, nil },
	["nupa.cache.channel"] = { "Channel", 8, "dec", { [1] = "D2H Req", [2] = "D2H Rsp", [3] = "D2H Data", [4] = "H2D Req", [5] = "H2D Rsp", [6] = "H2D Data" }, nil },
	["nupa.cache.flit"] = { "Kind of flit that it belongs to", 8, "dec", { [0] = "68B", [1] = "256B", [2] = "PBR" }, nil },
	["nupa.cache.line"] = { "What the line is in its ring", 8, "dec", { [1] = "message", [2] = "head" }, nil },
	["nupa.cache.role"] = { "What the host at this port does to the line", 8, "dec", { [1] = "writer", [2] = "reader" }, nil },
	["nupa.cache.before"] = { "State of this host's cache before", 4, "dec", { [0] = "I", [1] = "S", [2] = "E", [3] = "M" }, nil },
	["nupa.cache.after"] = { "State of this host's cache after", 4, "dec", { [0] = "I", [1] = "S", [2] = "E", [3] = "M" }, nil },
	["nupa.cache.peer_before"] = { "State of the other cache before", 4, "dec", { [0] = "I", [1] = "S", [2] = "E", [3] = "M" }, nil },
	["nupa.cache.peer_after"] = { "State of the other cache after", 4, "dec", { [0] = "I", [1] = "S", [2] = "E", [3] = "M" }, nil },
	["nupa.cache.peer"] = { "Host that the other cache belongs to, by its index", 16, "dec", nil, nil },
	["nupa.cache.at"] = { "The line, by its place in the segment", 64, "hex", nil, nil },
	["nupa.cache.valid"] = { "Valid", 1, "dec", nil, nil },
	["nupa.cache.req.opcode"] = { "Opcode", 5, "dec", { [1] = "RdCurr", [2] = "RdOwn", [3] = "RdShared", [4] = "RdAny", [5] = "RdOwnNoData", [6] = "ItoMWr", [7] = "WrCur", [8] = "CLFlush", [9] = "CleanEvict", [10] = "DirtyEvict", [11] = "CleanEvictNoData", [12] = "WOWrInv", [13] = "WOWrInvF", [14] = "WrInv", [16] = "CacheFlushed" }, nil },
	["nupa.cache.req.nt"] = { "Non-temporal", 1, "dec", nil, nil },
	["nupa.cache.cqid"] = { "Command queue ID, of who asks", 12, "hex", nil, nil },
	["nupa.cache.cache_id"] = { "Cache ID (256B)", 4, "dec", nil, nil },
	["nupa.cache.spid"] = { "Source PBR ID (PBR)", 12, "hex", nil, nil },
	["nupa.cache.dpid"] = { "Destination PBR ID (PBR)", 12, "hex", nil, nil },
	["nupa.cache.address"] = { "Address; bits 51:6", 64, "hex", nil, nil },
	["nupa.cache.rsp.opcode"] = { "Opcode", 5, "dec", { [1] = "RspSHitSE", [4] = "RspIHitI", [5] = "RspIHitSE", [6] = "RspVHitV", [7] = "RspSFwdM", [15] = "RspIFwdM", [22] = "RspVFwdV" }, nil },
	["nupa.cache.uqid"] = { "Unique queue ID, of a snoop", 12, "hex", nil, nil },
	["nupa.cache.chunk_valid"] = { "Upper half of the line (68B)", 1, "dec", nil, nil },
	["nupa.cache.data.bogus"] = { "Data is bogus: the line was lost to a snoop", 1, "dec", nil, nil },
	["nupa.cache.poison"] = { "Data is poisoned", 1, "dec", nil, nil },
	["nupa.cache.data.bep"] = { "Byte enables are present (256B, PBR)", 1, "dec", nil, nil },
	["nupa.cache.snp.opcode"] = { "Opcode", 3, "dec", { [1] = "SnpData", [2] = "SnpInv", [3] = "SnpCur" }, nil },
	["nupa.cache.go.opcode"] = { "Opcode", 4, "dec", { [1] = "WritePull", [4] = "GO", [5] = "GO_WritePull", [6] = "ExtCmp", [8] = "GO_WritePull_Drop", [12] = "Fast_GO", [13] = "Fast_GO_WritePull", [15] = "GO_ERR_WritePull" }, nil },
	["nupa.cache.go.rsp_pre"] = { "Where the line was found", 2, "dec", { [0] = "miss, local memory", [1] = "hit", [2] = "miss, remote memory" }, nil },
	["nupa.cache.go.rsp_data"] = { "GO: the state that is granted; WritePull: UQID", 12, "dec", { [1] = "Shared", [2] = "Exclusive", [3] = "Invalid", [4] = "Error", [6] = "Modified" }, nil },
	["nupa.cache.fill.go_err"] = { "The access failed: the data is all ones", 1, "dec", nil, nil },
	["nupa.doorbell.format"] = { "Format of the entry", 8, "dec", nil, nil },
	["nupa.doorbell.queue"] = { "Queue; CQ: a notification is requested", 8, "dec", { [0] = "SQ", [1] = "RQ", [2] = "SRQ", [3] = "CQ" }, nil },
	["nupa.doorbell.flags"] = { "Flags", 16, "hex", nil, { [0] = "solicited_only", [1] = "wakes" } },
	["nupa.doorbell.number"] = { "Number of the QP, SRQ or CQ", 32, "hex", nil, nil },
	["nupa.doorbell.index"] = { "Entries posted (CQ: polled) so far", 64, "dec", nil, nil },
	["nupa.wqe.format"] = { "Format of the entry", 8, "dec", nil, nil },
	["nupa.wqe.queue"] = { "Queue", 8, "dec", { [0] = "SQ", [1] = "RQ", [2] = "SRQ", [3] = "CQ" }, nil },
	["nupa.wqe.opcode"] = { "Opcode", 8, "dec", { [0] = "RDMA_WRITE", [1] = "RDMA_WRITE_WITH_IMM", [2] = "SEND", [3] = "SEND_WITH_IMM", [4] = "RDMA_READ", [5] = "ATOMIC_CMP_AND_SWP", [6] = "ATOMIC_FETCH_AND_ADD", [7] = "LOCAL_INV", [8] = "BIND_MW", [9] = "SEND_WITH_INV", [10] = "TSO", [11] = "DRIVER1", [14] = "FLUSH", [15] = "ATOMIC_WRITE" }, nil },
	["nupa.wqe.qp_type"] = { "QP type", 8, "dec", { [0] = "none", [2] = "RC", [3] = "UC", [4] = "UD", [8] = "RAW_PACKET", [9] = "XRC_SEND", [10] = "XRC_RECV" }, nil },
	["nupa.wqe.flags"] = { "Send flags", 16, "hex", nil, { [0] = "fence", [1] = "signaled", [2] = "solicited", [3] = "inline", [4] = "ip_csum" } },
	["nupa.wqe.bytes"] = { "Length of the entry with its segments", 16, "dec", nil, nil },
	["nupa.wqe.number"] = { "Number of the QP or SRQ", 32, "hex", nil, nil },
	["nupa.wqe.imm"] = { "Immediate data, or the rkey to invalidate", 32, "hex", nil, nil },
	["nupa.wqe.index"] = { "Place in its queue, counted from 0", 64, "dec", nil, nil },
	["nupa.wqe.wr_id"] = { "wr_id, the program's", 64, "hex", nil, nil },
	["nupa.wqe.length"] = { "Bytes of payload; of a receive, bytes of its buffers", 32, "dec", nil, nil },
	["nupa.wqe.psn"] = { "First PSN; 0xffffffff: not known yet", 32, "hex", nil, nil },
	["nupa.cqe.format"] = { "Format of the entry", 8, "dec", nil, nil },
	["nupa.cqe.status"] = { "Status", 8, "dec", { [0] = "SUCCESS", [1] = "LOC_LEN_ERR", [2] = "LOC_QP_OP_ERR", [3] = "LOC_EEC_OP_ERR", [4] = "LOC_PROT_ERR", [5] = "WR_FLUSH_ERR", [6] = "MW_BIND_ERR", [7] = "BAD_RESP_ERR", [8] = "LOC_ACCESS_ERR", [9] = "REM_INV_REQ_ERR", [10] = "REM_ACCESS_ERR", [11] = "REM_OP_ERR", [12] = "RETRY_EXC_ERR", [13] = "RNR_RETRY_EXC_ERR", [14] = "LOC_RDD_VIOL_ERR", [15] = "REM_INV_RD_REQ_ERR", [16] = "REM_ABORT_ERR", [17] = "INV_EECN_ERR", [18] = "INV_EEC_STATE_ERR", [19] = "FATAL_ERR", [20] = "RESP_TIMEOUT_ERR", [21] = "GENERAL_ERR", [22] = "TM_ERR", [23] = "TM_RNDV_INCOMPLETE" }, nil },
	["nupa.cqe.opcode"] = { "Opcode", 8, "dec", { [0] = "SEND", [1] = "RDMA_WRITE", [2] = "RDMA_READ", [3] = "COMP_SWAP", [4] = "FETCH_ADD", [5] = "BIND_MW", [6] = "LOCAL_INV", [7] = "TSO", [8] = "FLUSH", [9] = "ATOMIC_WRITE", [128] = "RECV", [129] = "RECV_RDMA_WITH_IMM", [130] = "TM_ADD", [131] = "TM_DEL", [132] = "TM_SYNC", [133] = "TM_RECV", [134] = "TM_NO_TAG", [135] = "DRIVER1", [136] = "DRIVER2", [137] = "DRIVER3" }, nil },
	["nupa.cqe.flags"] = { "Flags", 8, "hex", nil, { [0] = "grh", [1] = "with_imm", [2] = "ip_csum_ok", [3] = "with_inv", [4] = "tm_sync_req", [5] = "tm_match", [6] = "tm_data_valid" } },
	["nupa.cqe.cqn"] = { "Number of the CQ", 32, "hex", nil, nil },
	["nupa.cqe.qpn"] = { "Number of the QP", 32, "hex", nil, nil },
	["nupa.cqe.src_qp"] = { "Sender's QP (UD)", 32, "hex", nil, nil },
	["nupa.cqe.wr_id"] = { "wr_id, the program's", 64, "hex", nil, nil },
	["nupa.cqe.index"] = { "Place in its queue, counted from 0", 64, "dec", nil, nil },
	["nupa.cqe.byte_len"] = { "Bytes received or read", 32, "dec", nil, nil },
	["nupa.cqe.imm"] = { "Immediate data, or the rkey that was invalidated", 32, "hex", nil, nil },
	["nupa.cqe.slid"] = { "Sender's LID", 16, "dec", nil, nil },
	["nupa.cqe.sl"] = { "Service level", 8, "dec", nil, nil },
	["nupa.cqe.dlid_path_bits"] = { "Path bits of the source LID", 8, "dec", nil, nil },
	["nupa.cqe.pkey_index"] = { "P_Key, by its index", 16, "dec", nil, nil },
	["nupa.cqe.vendor_err"] = { "Vendor's error", 32, "hex", nil, nil },
	["nupa.cqe.timestamp"] = { "Time of completion, ns; 0: not taken", 64, "dec", nil, nil },
	["nupa.wqe.remote.type"] = { "Type of the segment", 8, "dec", { [1] = "remote address", [2] = "atomic operands", [3] = "datagram address", [4] = "XRC", [5] = "bind memory window", [6] = "data", [7] = "inline data" }, nil },
	["nupa.wqe.remote.bytes"] = { "Length of the segment with this header", 16, "dec", nil, nil },
	["nupa.wqe.remote.address"] = { "Remote address", 64, "hex", nil, nil },
	["nupa.wqe.remote.rkey"] = { "rkey", 32, "hex", nil, nil },
	["nupa.wqe.atomic.type"] = { "Type of the segment", 8, "dec", { [1] = "remote address", [2] = "atomic operands", [3] = "datagram address", [4] = "XRC", [5] = "bind memory window", [6] = "data", [7] = "inline data" }, nil },
	["nupa.wqe.atomic.bytes"] = { "Length of the segment with this header", 16, "dec", nil, nil },
	["nupa.wqe.atomic.compare_add"] = { "Compared with, or added", 64, "hex", nil, nil },
	["nupa.wqe.atomic.swap"] = { "Swapped in", 64, "hex", nil, nil },
	["nupa.wqe.datagram.type"] = { "Type of the segment", 8, "dec", { [1] = "remote address", [2] = "atomic operands", [3] = "datagram address", [4] = "XRC", [5] = "bind memory window", [6] = "data", [7] = "inline data" }, nil },
	["nupa.wqe.datagram.bytes"] = { "Length of the segment with this header", 16, "dec", nil, nil },
	["nupa.wqe.datagram.dest_qpn"] = { "Destination QP", 32, "hex", nil, nil },
	["nupa.wqe.datagram.qkey"] = { "Q_Key", 32, "hex", nil, nil },
	["nupa.wqe.datagram.dlid"] = { "Destination LID", 16, "dec", nil, nil },
	["nupa.wqe.datagram.sl"] = { "Service level", 8, "dec", nil, nil },
	["nupa.wqe.datagram.src_path_bits"] = { "Path bits of the source LID", 8, "dec", nil, nil },
	["nupa.wqe.datagram.is_global"] = { "Whether there is a GRH", 8, "dec", nil, nil },
	["nupa.wqe.datagram.sgid_index"] = { "Source GID, by its index", 8, "dec", nil, nil },
	["nupa.wqe.datagram.hop_limit"] = { "Hop limit", 8, "dec", nil, nil },
	["nupa.wqe.datagram.traffic_class"] = { "Traffic class", 8, "dec", nil, nil },
	["nupa.wqe.datagram.flow_label"] = { "Flow label", 32, "hex", nil, nil },
	["nupa.wqe.datagram.dgid"] = { "Destination GID", 128, "ipv6", nil, nil },
	["nupa.wqe.xrc.type"] = { "Type of the segment", 8, "dec", { [1] = "remote address", [2] = "atomic operands", [3] = "datagram address", [4] = "XRC", [5] = "bind memory window", [6] = "data", [7] = "inline data" }, nil },
	["nupa.wqe.xrc.bytes"] = { "Length of the segment with this header", 16, "dec", nil, nil },
	["nupa.wqe.xrc.srqn"] = { "Number of the SRQ", 32, "hex", nil, nil },
	["nupa.wqe.bind.type"] = { "Type of the segment", 8, "dec", { [1] = "remote address", [2] = "atomic operands", [3] = "datagram address", [4] = "XRC", [5] = "bind memory window", [6] = "data", [7] = "inline data" }, nil },
	["nupa.wqe.bind.bytes"] = { "Length of the segment with this header", 16, "dec", nil, nil },
	["nupa.wqe.bind.rkey"] = { "rkey of the window", 32, "hex", nil, nil },
	["nupa.wqe.bind.lkey"] = { "lkey of the region; 0: none", 32, "hex", nil, nil },
	["nupa.wqe.bind.access"] = { "Access flags", 32, "hex", nil, nil },
	["nupa.wqe.bind.address"] = { "Start of the window", 64, "hex", nil, nil },
	["nupa.wqe.bind.length"] = { "Length of the window in bytes", 64, "dec", nil, nil },
	["nupa.wqe.data.type"] = { "Type of the segment", 8, "dec", { [1] = "remote address", [2] = "atomic operands", [3] = "datagram address", [4] = "XRC", [5] = "bind memory window", [6] = "data", [7] = "inline data" }, nil },
	["nupa.wqe.data.bytes"] = { "Length of the segment with this header", 16, "dec", nil, nil },
	["nupa.wqe.data.address"] = { "Address", 64, "hex", nil, nil },
	["nupa.wqe.data.length"] = { "Length in bytes", 32, "dec", nil, nil },
	["nupa.wqe.data.lkey"] = { "lkey", 32, "hex", nil, nil },
	["nupa.wqe.inline.type"] = { "Type of the segment", 8, "dec", { [1] = "remote address", [2] = "atomic operands", [3] = "datagram address", [4] = "XRC", [5] = "bind memory window", [6] = "data", [7] = "inline data" }, nil },
	["nupa.wqe.inline.bytes"] = { "Length of the segment with this header", 16, "dec", nil, nil },
}
-- tables: end

local nupa = Proto("nupa", "NUPA fabric record")

-- Fields of variable length, which the tables do not have.
local DATA = ProtoField.bytes("nupa.data", "Data")
local REST = ProtoField.bytes("nupa.rest", "Of a newer version")
local OPERANDS = {
	operand = ProtoField.uint64("nupa.tlp.operand", "Operand", base.HEX),
	compare = ProtoField.uint64("nupa.tlp.compare", "Compared with", base.HEX),
	swap = ProtoField.uint64("nupa.tlp.swap", "Swapped in", base.HEX),
	operand_bytes = ProtoField.bytes("nupa.tlp.operand_bytes", "Operands, little endian"),
}
local ECRC = ProtoField.uint32("nupa.tlp.ecrc", "Digest (ECRC)", base.HEX)
local BYTE_ENABLES = ProtoField.uint64("nupa.cxl.byte_enables", "Byte enables", base.HEX)
local EMS = ProtoField.uint32("nupa.cxl.ems", "Extended Meta-State", base.HEX)

local MALFORMED = ProtoExpert.new(
	"nupa.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
local CUT = ProtoExpert.new(
	"nupa.cut", "Cut by the snap length", expert.group.UNDECODED, expert.severity.NOTE)
nupa.experts = { MALFORMED, CUT }

local all = { DATA, REST, ECRC, BYTE_ENABLES, EMS }
for _, field in pairs(OPERANDS) do
	table.insert(all, field)
end

-- Bits that have names become fields of their own, below the number.
local function flags_of(abbrev, bits, names)
	local found, mask = {}, 1
	for bit = 0, bits - 1 do
		local name = names[bit]
		if name then
			table.insert(found, ProtoField.bool(abbrev .. "." .. name, name, bits, nil, mask))
		end
		mask = mask * 2
	end
	return found
end

local shown = {} -- by abbrev: { field, fields of the bits, width }
for abbrev, spec in pairs(FIELDS) do
	local text, bits, kind, values, names = spec[1], spec[2], spec[3], spec[4], spec[5]
	local number_base = kind == "hex" and base.HEX or base.DEC
	local field
	if kind == "ipv6" then
		field = ProtoField.ipv6(abbrev, text)
	elseif bits > 32 then
		field = ProtoField.uint64(abbrev, text, number_base)
	elseif bits > 16 then
		field = ProtoField.uint32(abbrev, text, number_base, values)
	elseif bits > 8 then
		field = ProtoField.uint16(abbrev, text, number_base, values)
	else
		field = ProtoField.uint8(abbrev, text, number_base, values)
	end
	shown[abbrev] = { field, names and flags_of(abbrev, bits, names) or {}, bits }
	table.insert(all, field)
	for _, flag in ipairs(shown[abbrev][2]) do
		table.insert(all, flag)
	end
end
nupa.fields = all

-- Adds the fields of a layout at `at`; returns their values by name, or nil if bytes are missing.
local function show(layout, tree, buffer, at)
	local spec = LAYOUTS[layout]
	if buffer:len() - at < spec.bytes then
		local cut = buffer:reported_len() > buffer:len()
		tree:add_proto_expert_info(cut and CUT or MALFORMED, string.format(
			"%s: %d bytes are needed, %d are there", spec.text, spec.bytes, buffer:len() - at))
		return nil
	end
	local values, bit = {}, 0
	for _, field in ipairs(spec) do
		local name, bits, shift, abbrev = field[1], field[2], field[3], field[4]
		local first = math.floor(bit / 8)
		local range = buffer(at + first, math.floor((bit + bits - 1) / 8) - first + 1)
		local target = shown[abbrev]
		if bits == 128 then
			tree:add(target[1], range)
		else
			local value = range:bitfield(bit % 8, bits)
			if bits <= 32 and target and target[3] > 32 then
				value = UInt64(value, 0)
			end
			if shift > 0 then
				value = value:lshift(shift)
			end
			values[name] = value
			if target then
				local item = tree:add(target[1], range, value)
				for _, flag in ipairs(target[2]) do
					item:add(flag, range)
				end
			end
		end
		bit = bit + bits
	end
	return values
end

local function show_data(tree, buffer, at, size)
	local there = math.min(size, buffer:len() - at)
	if there > 0 then
		tree:add(DATA, buffer(at, there))
	end
	return at + math.max(there, 0)
end

local function named(abbrev, value)
	local names = FIELDS[abbrev][4]
	return names and names[value] or tostring(value)
end

-- PCIe 6.0, 2.2.7: one or two operands of 1, 2 or 4 DW
local function show_operands(tree, buffer, at, name, size)
	local operands = name:sub(1, 3) == "CAS" and { "compare", "swap" } or { "operand" }
	local each = size / #operands
	if each ~= 4 and each ~= 8 or buffer:len() - at < size then
		return show_data(tree, buffer, at, size)
	end
	for i, operand in ipairs(operands) do
		local range = buffer(at + (i - 1) * each, each)
		tree:add(OPERANDS[operand], range, range:le_uint64())
	end
	return at + size
end

local function dissect_tlp(buffer, at, pinfo, root)
	local tree = root:add(nupa, buffer(at), "PCIe TLP")
	local dw0 = show("TLP", tree, buffer, at)
	if not dw0 then
		return "PCIe TLP"
	end
	local name = TLP_TYPES[dw0.fmt * 32 + dw0.type] or
		string.format("TLP %d/0x%02x", dw0.fmt, dw0.type)
	local has_data, wide = dw0.fmt == 2 or dw0.fmt == 3, dw0.fmt % 2 == 1
	local size = has_data and (dw0.length == 0 and 1024 or dw0.length) * 4 or 0
	local text, place = name, at + 4
	tree:append_text(": " .. name)
	local header
	if name:find("^Cpl") then
		header = show("Cpl", tree, buffer, place)
		if header then
			text = string.format("%s tag %d, %d bytes left", name, header.tag, header.byte_count)
		end
		place = place + 8
	elseif name:find("^Msg") then
		header = show("Msg", tree, buffer, place)
		if header then
			text = string.format("%s %s, %s", name, named("nupa.tlp.msg.code", header.code),
				ROUTING[dw0.type % 8] or "routing reserved")
		end
		place = place + 12
	elseif name:find("^M") or name:find("^DM") or name:find("^Fetch") or name:find("^Swap") or
		name:find("^CAS") then
		header = show(wide and "Mem64" or "Mem32", tree, buffer, place)
		if header then
			text = string.format("%s 0x%s tag %d, %d DW", name, header.address:tohex(), header.tag,
				dw0.length)
		end
		place = place + (wide and 12 or 8)
	else -- I/O, configuration, prefixes: no port of a fabric has them
		return name, show_data(tree, buffer, place, buffer:len() - place)
	end
	if header and (name:find("^Fetch") or name:find("^Swap") or name:find("^CAS")) then
		place = show_operands(tree, buffer, place, name, size)
	elseif header then
		place = show_data(tree, buffer, place, size)
	end
	if header and dw0.td == 1 and buffer:len() - place >= 4 then
		tree:add_le(ECRC, buffer(place, 4))
	end
	return text
end

local function dissect_cxl(buffer, at, pinfo, root)
	local tree = root:add(nupa, buffer(at), "CXL.mem")
	local head = show("CxlMem", tree, buffer, at)
	if not head then
		return "CXL.mem"
	end
	local layout = CHANNELS[head.channel]
	local channel = named("nupa.cxl.channel", head.channel)
	tree:append_text(": " .. channel)
	if not layout then
		tree:add_proto_expert_info(MALFORMED, "there is no channel " .. head.channel)
		return "CXL.mem"
	end
	local place = at + LAYOUTS.CxlMem.bytes
	local message = show(layout, tree, buffer, place)
	if not message then
		return channel
	end
	place = place + LAYOUTS[layout].bytes
	local opcode_of
	for _, field in ipairs(LAYOUTS[layout]) do
		if field[1] == "opcode" then
			opcode_of = field[4]
		end
	end
	local text = channel .. " " .. named(opcode_of, message.opcode)
	if message.address then
		text = text .. " 0x" .. message.address:tohex()
	end
	if message.tag then
		text = text .. string.format(" tag 0x%x", message.tag)
	end
	local with_data = layout == "M2SRwD" or layout == "S2MDRS"
	if layout == "M2SRwD" and PARTIAL_WRITES[message.opcode] and buffer:len() - place >= 8 then
		tree:add(BYTE_ENABLES, buffer(place, 8))
		place = place + 8
	end
	if with_data and message.trp == 1 and message.meta_field == META_EMS and
		buffer:len() - place >= 4 then
		tree:add(EMS, buffer(place, 4))
		place = place + 4
	end
	if with_data then
		show_data(tree, buffer, place, 64)
	end
	return text
end

local function dissect_cache(buffer, at, pinfo, root)
	local tree = root:add(nupa, buffer(at), "CXL.cache")
	local head = show("CxlCache", tree, buffer, at)
	if not head then
		return "CXL.cache"
	end
	local layout = CACHE_CHANNELS[head.channel]
	local text = named("nupa.cache.channel", head.channel)
	tree:append_text(": " .. text)
	if not layout then
		tree:add_proto_expert_info(MALFORMED, "there is no channel " .. head.channel)
		return "CXL.cache"
	end
	local place = at + LAYOUTS.CxlCache.bytes
	local message = show(layout, tree, buffer, place)
	if not message then
		return text
	end
	place = place + LAYOUTS[layout].bytes
	for _, field in ipairs(LAYOUTS[layout]) do
		if field[1] == "opcode" then
			text = text .. " " .. named(field[4], message.opcode)
		end
	end
	text = string.format("%s %s 0x%s %s 0x%x, %s to %s", text, named("nupa.cache.line", head.line),
		head.at:tohex(), message.cqid and "CQID" or "UQID", message.cqid or message.uqid,
		named("nupa.cache.before", head.before), named("nupa.cache.after", head.after))
	if message.bep == 1 and buffer:len() - place >= 8 then
		tree:add(BYTE_ENABLES, buffer(place, 8))
		place = place + 8
	end
	if layout == "D2HData" or layout == "H2DData" then
		show_data(tree, buffer, place, 64)
	end
	return text
end

local function show_segments(tree, buffer, at, stop)
	while at < stop do
		local type = buffer(at, 1):uint()
		local layout = SEGMENTS[type] or "InlineSegment"
		local name = SEGMENTS[type] and LAYOUTS[layout].text or "Segment of type " .. type
		local branch = tree:add(nupa, buffer(at, stop - at), name)
		local segment = show(layout, branch, buffer, at)
		if not segment then
			return
		end
		local fixed = LAYOUTS[layout].bytes
		if segment.bytes < fixed or segment.bytes > stop - at then
			branch:add_proto_expert_info(MALFORMED, string.format(
				"a segment of %d bytes: it needs %d, %d are there", segment.bytes, fixed,
				stop - at))
			return
		end
		branch:set_len(segment.bytes)
		if segment.bytes > fixed then
			branch:add(layout == "InlineSegment" and DATA or REST,
				buffer(at + fixed, segment.bytes - fixed))
		end
		at = at + segment.bytes
	end
end

local function dissect_wqe(buffer, at, pinfo, root)
	local tree = root:add(nupa, buffer(at), "WQE")
	local wqe = show("WQE", tree, buffer, at)
	if not wqe then
		return "WQE"
	end
	local text = string.format("WQE %s 0x%x: %s, %d bytes", named("nupa.wqe.queue", wqe.queue),
		wqe.number, wqe.queue == 0 and named("nupa.wqe.opcode", wqe.opcode) or "receive", wqe.length)
	local stop = at + wqe.bytes
	if stop > buffer:len() then
		local cut = buffer:reported_len() > buffer:len()
		tree:add_proto_expert_info(cut and CUT or MALFORMED, string.format(
			"a WQE of %d bytes, of which %d are there", wqe.bytes, buffer:len() - at))
		stop = buffer:len()
	end
	show_segments(tree, buffer, at + LAYOUTS.WQE.bytes, stop)
	return text
end

local function dissect_doorbell(buffer, at, pinfo, root)
	local tree = root:add(nupa, buffer(at), "Doorbell")
	local bell = show("Doorbell", tree, buffer, at)
	return bell and string.format("Doorbell %s 0x%x, %s", named("nupa.doorbell.queue", bell.queue),
		bell.number, tostring(bell.index)) or "Doorbell"
end

local function dissect_cqe(buffer, at, pinfo, root)
	local tree = root:add(nupa, buffer(at), "CQE")
	local cqe = show("CQE", tree, buffer, at)
	return cqe and string.format("CQE QP 0x%x: %s %s, %d bytes", cqe.qpn,
		named("nupa.cqe.opcode", cqe.opcode), named("nupa.cqe.status", cqe.status), cqe.byte_len) or
		"CQE"
end

local function dissect_ethernet(buffer, at, pinfo, root)
	if buffer:len() > at then
		Dissector.get("eth_withoutfcs"):call(buffer(at):tvb(), pinfo, root)
	end
	return nil -- the Ethernet dissector sets the columns
end

local KINDS = {
	{ "PCIe", dissect_tlp },
	{ "CXL.mem", dissect_cxl },
	{ "NUPA", dissect_doorbell },
	{ "NUPA", dissect_wqe },
	{ "NUPA", dissect_cqe },
	{ "NUPA", dissect_ethernet },
	{ "CXL.cache", dissect_cache },
}

function nupa.dissector(buffer, pinfo, root)
	pinfo.cols.protocol = "NUPA"
	pinfo.cols.info = "NUPA record"
	local tree = root:add(nupa, buffer())
	local head = show("Nupa", tree, buffer, 0)
	if not head then
		return
	end
	if head.version ~= VERSION or head.header_bytes < LAYOUTS.Nupa.bytes or
		head.header_bytes > buffer:len() then
		tree:add_proto_expert_info(MALFORMED, string.format(
			"version %d with a header of %d bytes: this dissector has version %d with %d",
			head.version, head.header_bytes, VERSION, LAYOUTS.Nupa.bytes))
		return
	end
	tree:set_len(head.header_bytes)
	if head.header_bytes > LAYOUTS.Nupa.bytes then
		tree:add(REST, buffer(LAYOUTS.Nupa.bytes, head.header_bytes - LAYOUTS.Nupa.bytes))
	end
	local kind = KINDS[head.kind]
	if not kind then
		show_data(tree, buffer, head.header_bytes, buffer:len() - head.header_bytes)
		return
	end
	if head.header_bytes == buffer:len() then
		return
	end
	pinfo.cols.protocol = kind[1]
	local text = kind[2](buffer, head.header_bytes, pinfo, root)
	if text then
		pinfo.cols.info = text
	end
end

DissectorTable.get("wtap_encap"):add((wtap_encaps or wtap)["USER" .. LINKTYPE_USER], nupa)
