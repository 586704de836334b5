/* SPDX-License-Identifier: BSD-3-Clause
 * Slots of flits: where the fields of a message's header lie in their 16 bytes. */
#ifndef NUPA_CXL_FLIT_SLOT_H
#define NUPA_CXL_FLIT_SLOT_H

#include "cxl/flit.h"

#include <endian.h>
#include <string.h>

#define SLOT_BYTES 16u
#define LINE_SLOTS 4u
#define FLIT_CHANNELS (NUPA_CXL_S2M_DRS + 1)

/* Byte 0 is the lowest. */
typedef unsigned __int128 flit_slot;

/* The first bit of each field; 0: the message has it not.  An address is from bit `shift` on. */
struct flit_places {
	uint8_t valid, opcode, opcode_bits, snp_type, meta_field, meta_value, tag;
	uint8_t address, address_bits, poison, trailer, tc, ld_id, dev_load, spid, dpid;
	uint16_t opcodes; /* a bit for each that there is */
};

static inline flit_slot slot_load(const uint8_t *from, uint32_t bytes)
{
	uint64_t words[2] = { 0 };

	memcpy(words, from, bytes);
	return (flit_slot)le64toh(words[1]) << 64 | le64toh(words[0]);
}

static inline void slot_store(uint8_t *to, uint32_t bytes, flit_slot slot)
{
	uint64_t words[2] = { htole64((uint64_t)slot), htole64((uint64_t)(slot >> 64)) };

	memcpy(to, words, bytes);
}

/* Whose format slot 0 has, by a table of each channel's; 0: no message's of this direction. */
uint8_t flit_channel_of(const uint8_t formats[FLIT_CHANNELS], bool up, uint32_t format);

/* NULL: flits carry no such channel. */
const struct flit_places *flit_places_of(uint32_t format, uint32_t channel);

/* False: a field does not fit. */
bool flit_header_put(const struct flit_places *places, const struct nupa_cxl_message *message,
		     flit_slot *slot);
/* False: it is not valid, or its opcode is none.  `channel` is set already. */
bool flit_header_take(const struct flit_places *places, flit_slot slot,
		      struct nupa_cxl_message *message);

static inline bool flit_has_data(const struct nupa_cxl_message *message)
{
	return message->channel == NUPA_CXL_M2S_RWD || message->channel == NUPA_CXL_S2M_DRS;
}

/* MemWrPtl. */
static inline bool flit_has_enables(const struct nupa_cxl_message *message)
{
	return message->channel == NUPA_CXL_M2S_RWD && message->opcode == 2;
}

int flit_pack_68(const struct nupa_cxl_message *message, uint8_t *flits);
int flit_unpack_68(bool up, const uint8_t *flits, uint32_t n, struct nupa_cxl_message *message,
		   uint32_t *corrected);
/* NUPA_FLIT_256 or NUPA_FLIT_PBR. */
int flit_pack_256(uint32_t format, const struct nupa_cxl_message *message, uint8_t *flit);
int flit_unpack_256(uint32_t format, bool up, const uint8_t *flit,
		    struct nupa_cxl_message *message);

#endif
