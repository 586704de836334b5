-- SPDX-License-Identifier: BSD-3-Clause
-- Wireshark dissector of NUPA's link type: PCIe TLPs, CXL messages, queue entries.
-- `nupa dissector --install` installs it; docs/packet.md describes the format.

-- tables

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
