/* SPDX-License-Identifier: BSD-3-Clause
 * Headers of CXL.mem messages in slots, which both kinds of flits have. */
#include "cxl/flit.h"

#include "cxl/flit_slot.h"

#include <errno.h>

_Static_assert(sizeof(struct nupa_cxl_message) == 96, "nupa/cxl/link/messages.py has its places");

#define ADDRESS_END 52u

/* CXL 3.1 4.2.3.1, H5 and H4; 4.2.3.2, H4 and H3: in slot 0, whose first 32 bits are the flit's. */
static const struct flit_places places_68[FLIT_CHANNELS] = {
	[NUPA_CXL_M2S_REQ] = { .valid = 32,
			       .opcode = 33,
			       .opcode_bits = 4,
			       .snp_type = 37,
			       .meta_field = 40,
			       .meta_value = 42,
			       .tag = 44,
			       .address = 60,
			       .address_bits = 47,
			       .tc = 107,
			       .ld_id = 109,
			       .opcodes = 0x071F },
	[NUPA_CXL_M2S_RWD] = { .valid = 32,
			       .opcode = 33,
			       .opcode_bits = 4,
			       .snp_type = 37,
			       .meta_field = 40,
			       .meta_value = 42,
			       .tag = 44,
			       .address = 60,
			       .address_bits = 46,
			       .poison = 106,
			       .tc = 107,
			       .ld_id = 109,
			       .opcodes = 0x0006 },
	[NUPA_CXL_S2M_NDR] = { .valid = 32,
			       .opcode = 33,
			       .opcode_bits = 3,
			       .meta_field = 36,
			       .meta_value = 38,
			       .tag = 40,
			       .ld_id = 56,
			       .dev_load = 90,
			       .opcodes = 0x0007 },
	[NUPA_CXL_S2M_DRS] = { .valid = 32,
			       .opcode = 33,
			       .opcode_bits = 3,
			       .meta_field = 36,
			       .meta_value = 38,
			       .tag = 40,
			       .poison = 56,
			       .ld_id = 57,
			       .dev_load = 61,
			       .opcodes = 0x0003 },
};

/* CXL 3.1 4.3.3, H4, H14, H7 and H15, behind 4 bits of slot format; in the order of the tables of
 * 3.3.5 to 3.3.10. */
static const struct flit_places places_256[FLIT_CHANNELS] = {
	[NUPA_CXL_M2S_REQ] = { .valid = 4,
			       .opcode = 5,
			       .opcode_bits = 4,
			       .snp_type = 9,
			       .meta_field = 12,
			       .meta_value = 14,
			       .tag = 16,
			       .address = 32,
			       .address_bits = 46,
			       .ld_id = 80,
			       .tc = 97,
			       .opcodes = 0x071F },
	[NUPA_CXL_M2S_RWD] = { .valid = 4,
			       .opcode = 5,
			       .opcode_bits = 4,
			       .snp_type = 9,
			       .meta_field = 12,
			       .meta_value = 14,
			       .tag = 16,
			       .address = 32,
			       .address_bits = 46,
			       .poison = 78,
			       .trailer = 79,
			       .ld_id = 80,
			       .tc = 97,
			       .opcodes = 0x0006 },
	[NUPA_CXL_S2M_NDR] = { .valid = 4,
			       .opcode = 5,
			       .opcode_bits = 3,
			       .meta_field = 8,
			       .meta_value = 10,
			       .tag = 12,
			       .dev_load = 28,
			       .ld_id = 30,
			       .opcodes = 0x001F },
	[NUPA_CXL_S2M_DRS] = { .valid = 4,
			       .opcode = 5,
			       .opcode_bits = 3,
			       .meta_field = 8,
			       .meta_value = 10,
			       .tag = 12,
			       .poison = 28,
			       .dev_load = 29,
			       .ld_id = 31,
			       .trailer = 35,
			       .opcodes = 0x0003 },
};

/* The same, PBR: figures of 4.3.3 where PIDs stand for the LD-ID. */
static const struct flit_places places_pbr[FLIT_CHANNELS] = {
	[NUPA_CXL_M2S_REQ] = { .valid = 4,
			       .opcode = 5,
			       .opcode_bits = 4,
			       .snp_type = 9,
			       .meta_field = 12,
			       .meta_value = 14,
			       .tag = 16,
			       .address = 32,
			       .address_bits = 46,
			       .spid = 80,
			       .dpid = 92,
			       .opcodes = 0x071F },
	[NUPA_CXL_M2S_RWD] = { .valid = 4,
			       .opcode = 5,
			       .opcode_bits = 4,
			       .snp_type = 9,
			       .meta_field = 12,
			       .meta_value = 14,
			       .tag = 16,
			       .address = 32,
			       .address_bits = 46,
			       .poison = 78,
			       .trailer = 79,
			       .spid = 80,
			       .dpid = 92,
			       .opcodes = 0x0006 },
	[NUPA_CXL_S2M_NDR] = { .valid = 4,
			       .opcode = 5,
			       .opcode_bits = 3,
			       .meta_field = 8,
			       .meta_value = 10,
			       .tag = 12,
			       .dev_load = 28,
			       .dpid = 30,
			       .opcodes = 0x001F },
	[NUPA_CXL_S2M_DRS] = { .valid = 4,
			       .opcode = 5,
			       .opcode_bits = 3,
			       .meta_field = 8,
			       .meta_value = 10,
			       .tag = 12,
			       .poison = 28,
			       .dev_load = 29,
			       .dpid = 31,
			       .trailer = 43,
			       .opcodes = 0x0003 },
};

uint8_t flit_channel_of(const uint8_t formats[FLIT_CHANNELS], bool up, uint32_t format)
{
	for (uint8_t channel = 1; format && channel < FLIT_CHANNELS; channel++)
		if (formats[channel] == format && (channel >= NUPA_CXL_S2M_NDR) == up)
			return channel;
	return 0;
}

const struct flit_places *flit_places_of(uint32_t format, uint32_t channel)
{
	static const struct flit_places *const places[] = {
		[NUPA_FLIT_68] = places_68,
		[NUPA_FLIT_256] = places_256,
		[NUPA_FLIT_PBR] = places_pbr,
	};

	return channel < FLIT_CHANNELS && places[format][channel].opcodes ? &places[format][channel]
									  : NULL;
}

/* False: the value is larger than its bits, or is not 0 where the message has no such field. */
static bool put(flit_slot *slot, uint32_t at, uint32_t bits, uint64_t value)
{
	if (value >> (at ? bits : 0))
		return false;
	*slot |= (flit_slot)value << at;
	return true;
}

static uint64_t take(flit_slot slot, uint32_t at, uint32_t bits)
{
	return at ? (uint64_t)(slot >> at) & ((UINT64_C(1) << bits) - 1) : 0;
}

bool flit_header_put(const struct flit_places *places, const struct nupa_cxl_message *message,
		     flit_slot *slot)
{
	uint32_t shift = ADDRESS_END - places->address_bits;

	if (message->opcode > 15 || !(places->opcodes >> message->opcode & 1))
		return false;
	if (places->address ? message->address & ((UINT64_C(1) << shift) - 1) : message->address)
		return false;
	if (!flit_has_enables(message) && message->byte_enables)
		return false;
	return put(slot, places->valid, 1, 1) &&
	       put(slot, places->opcode, places->opcode_bits, message->opcode) &&
	       put(slot, places->snp_type, 3, message->snp_type) &&
	       put(slot, places->meta_field, 2, message->meta_field) &&
	       put(slot, places->meta_value, 2, message->meta_value) &&
	       put(slot, places->tag, 16, message->tag) &&
	       put(slot, places->address, places->address_bits,
		   places->address ? message->address >> shift : 0) &&
	       put(slot, places->poison, 1, message->poison) &&
	       put(slot, places->trailer, 1, places->trailer && flit_has_enables(message)) &&
	       put(slot, places->tc, 2, message->tc) &&
	       put(slot, places->ld_id, 4, message->ld_id) &&
	       put(slot, places->dev_load, 2, message->dev_load) &&
	       put(slot, places->spid, 12, message->spid) &&
	       put(slot, places->dpid, 12, message->dpid);
}

bool flit_header_take(const struct flit_places *places, flit_slot slot,
		      struct nupa_cxl_message *message)
{
	uint32_t shift = ADDRESS_END - places->address_bits;

	message->opcode = (uint8_t)take(slot, places->opcode, places->opcode_bits);
	if (!take(slot, places->valid, 1) || !(places->opcodes >> message->opcode & 1))
		return false;
	message->snp_type = (uint8_t)take(slot, places->snp_type, 3);
	message->meta_field = (uint8_t)take(slot, places->meta_field, 2);
	message->meta_value = (uint8_t)take(slot, places->meta_value, 2);
	message->tag = (uint16_t)take(slot, places->tag, 16);
	message->address =
	    places->address ? take(slot, places->address, places->address_bits) << shift : 0;
	message->poison = (uint8_t)take(slot, places->poison, 1);
	message->tc = (uint8_t)take(slot, places->tc, 2);
	message->ld_id = (uint8_t)take(slot, places->ld_id, 4);
	message->dev_load = (uint8_t)take(slot, places->dev_load, 2);
	message->spid = (uint16_t)take(slot, places->spid, 12);
	message->dpid = (uint16_t)take(slot, places->dpid, 12);
	/* 256B flits: byte enables follow, or nothing does. */
	return !places->trailer || take(slot, places->trailer, 1) == flit_has_enables(message);
}

uint32_t nupa_flit_bytes(uint32_t format)
{
	return format == NUPA_FLIT_68 ? 68 : 256;
}

int nupa_flit_pack(uint32_t format, const struct nupa_cxl_message *message, uint8_t *flits)
{
	if (format == NUPA_FLIT_68)
		return flit_pack_68(message, flits);
	return format <= NUPA_FLIT_PBR ? flit_pack_256(format, message, flits) : -EINVAL;
}

int nupa_flit_unpack(uint32_t format, bool up, const uint8_t *flits, uint32_t n,
		     struct nupa_cxl_message *message, uint32_t *corrected)
{
	memset(message, 0, sizeof(*message));
	if (!n)
		return NUPA_FLIT_SHORT;
	if (format == NUPA_FLIT_68)
		return flit_unpack_68(up, flits, n, message, corrected);
	return format <= NUPA_FLIT_PBR && n == 1 ? flit_unpack_256(format, up, flits, message)
						 : NUPA_FLIT_SLOT;
}
