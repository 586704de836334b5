/* SPDX-License-Identifier: BSD-3-Clause
 * 256B flits: CXL 3.1 4.3.2; latency-optimised ones have two halves with a CRC each (6.2.3.1.2),
 * PBR ones are standard flits with one CRC (6.2.3.1.1).  FEC is not modelled: its bytes are 0. */
#include "cxl/flit_crc.h"
#include "cxl/flit_slot.h"

#include <errno.h>

#define BYTES 256u
#define HEADER_BYTES 2u /* of the flit; slot 0 has the other 14 */
#define SLOT0_BYTES 14u
#define EVEN_BYTES 122u /* of the even half; its CRC follows */
#define ODD_AT 128u
#define ODD_BYTES 116u
#define FEC_AT (ODD_AT + ODD_BYTES)
#define FEC_BYTES 6u
#define ODD_CRC_AT (FEC_AT + FEC_BYTES)
#define PBR_FEC_AT (BYTES - FEC_BYTES)
#define ENABLES_AT ((1 + LINE_SLOTS) * SLOT_BYTES) /* behind the data: slot 5 */
/* 6.2.3.1.1: a CXL.cachemem flit, and so was the one before. */
#define CACHEMEM (2u << 6 | 1u << 5)

/* Table 4-15: the format of slot 0 of each message. */
static const uint8_t formats[FLIT_CHANNELS] = {
	[NUPA_CXL_M2S_REQ] = 4,
	[NUPA_CXL_M2S_RWD] = 14,
	[NUPA_CXL_S2M_NDR] = 7,
	[NUPA_CXL_S2M_DRS] = 15,
};

int flit_pack_256(uint32_t format, const struct nupa_cxl_message *message, uint8_t *flit)
{
	const struct flit_places *places = flit_places_of(format, message->channel);
	flit_slot slot;

	if (!places)
		return -EINVAL;
	slot = formats[message->channel];
	if (!flit_header_put(places, message, &slot))
		return -EINVAL;
	memset(flit, 0, BYTES);
	flit[0] = CACHEMEM;
	slot_store(flit + HEADER_BYTES, SLOT0_BYTES, slot);
	if (flit_has_data(message))
		memcpy(flit + SLOT_BYTES, message->data, LINE_SLOTS * SLOT_BYTES);
	if (flit_has_enables(message))
		slot_store(flit + ENABLES_AT, SLOT_BYTES, message->byte_enables);
	if (format == NUPA_FLIT_PBR) {
		flit_crc64(flit, flit + FLIT_CRC64_OF);
	} else {
		flit_crc48(flit, EVEN_BYTES, flit + EVEN_BYTES);
		flit_crc48(flit + ODD_AT, ODD_BYTES, flit + ODD_CRC_AT);
	}
	return 1;
}

static bool is_zero(const uint8_t *bytes, uint32_t n)
{
	static const uint8_t zeros[BYTES];

	return !memcmp(bytes, zeros, n);
}

static bool is_whole(const uint8_t *half, uint32_t bytes, const uint8_t *crc)
{
	uint8_t wanted[FLIT_CRC48_BYTES];

	flit_crc48(half, bytes, wanted);
	return !memcmp(wanted, crc, sizeof(wanted));
}

/* CRCs, and the FEC that is none. */
static bool is_sound(uint32_t format, const uint8_t *flit)
{
	uint8_t wanted[FLIT_CRC64_BYTES];

	if (format == NUPA_FLIT_PBR) {
		flit_crc64(flit, wanted);
		return !memcmp(wanted, flit + FLIT_CRC64_OF, sizeof(wanted)) &&
		       is_zero(flit + PBR_FEC_AT, FEC_BYTES);
	}
	return is_whole(flit, EVEN_BYTES, flit + EVEN_BYTES) &&
	       is_whole(flit + ODD_AT, ODD_BYTES, flit + ODD_CRC_AT) &&
	       is_zero(flit + FEC_AT, FEC_BYTES);
}

/* Slots from `first` on have nothing valid: this model sends one message in a flit. */
static bool is_empty(uint32_t format, const uint8_t *flit, uint32_t first)
{
	if (format == NUPA_FLIT_PBR)
		return is_zero(flit + first, FLIT_CRC64_OF - first);
	return is_zero(flit + first, EVEN_BYTES - first) && is_zero(flit + ODD_AT, ODD_BYTES);
}

int flit_unpack_256(uint32_t format, bool up, const uint8_t *flit, struct nupa_cxl_message *message)
{
	flit_slot slot = slot_load(flit + HEADER_BYTES, SLOT0_BYTES);
	uint32_t end = SLOT_BYTES;

	if (!is_sound(format, flit))
		return NUPA_FLIT_CRC;
	if (flit[0] >> 6 != CACHEMEM >> 6)
		return NUPA_FLIT_PROTOCOL_ID;
	message->channel = flit_channel_of(formats, up, (uint32_t)slot & 0xF);
	if (!message->channel)
		return NUPA_FLIT_SLOT;
	if (!flit_header_take(flit_places_of(format, message->channel), slot, message))
		return NUPA_FLIT_MESSAGE;
	if (flit_has_data(message)) {
		memcpy(message->data, flit + end, LINE_SLOTS * SLOT_BYTES);
		end += LINE_SLOTS * SLOT_BYTES;
	}
	if (flit_has_enables(message)) {
		message->byte_enables = (uint64_t)slot_load(flit + end, SLOT_BYTES);
		end += SLOT_BYTES;
	}
	return is_empty(format, flit, end) ? NUPA_FLIT_FINE : NUPA_FLIT_SLOT;
}
