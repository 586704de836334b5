/* SPDX-License-Identifier: BSD-3-Clause
 * 68B flits: CXL 3.1 4.2, and 6.2.2 for the protocol ID in front. */
#include "cxl/flit_crc.h"
#include "cxl/flit_slot.h"

#include <errno.h>

#define BYTES 68u
#define PAYLOAD 2u /* where it begins */
#define CRC_AT (PAYLOAD + FLIT_CRC16_BYTES)
#define CACHEMEM 0x55u /* 6.2.2.1: both bytes */
#define CONTROL 1u     /* type */
#define BYTE_ENABLE (1u << 3)
#define FULL_SIZE (1u << 4)
#define G0 0u    /* data */
#define EMPTY 1u /* G1 without a valid message: G0 would be data */

/* Table 4-6: the format of slot 0 of each message. */
static const uint8_t formats[FLIT_CHANNELS] = {
	[NUPA_CXL_M2S_REQ] = 5,
	[NUPA_CXL_M2S_RWD] = 4,
	[NUPA_CXL_S2M_NDR] = 4,
	[NUPA_CXL_S2M_DRS] = 3,
};

static const uint8_t valid_ids[] = { 0xFF, 0xD2, 0x55, 0x87, 0x99, 0x4B, 0xCC, 0x1E };

/* The flit header: type, lengths, and the formats of four slots (table 4-2, and the figures). */
static uint32_t header_of(uint32_t first, uint32_t data_slots, uint32_t lengths)
{
	uint32_t header = lengths | first << 5;

	for (uint32_t slot = 1; slot < 4; slot++)
		header |= (slot <= data_slots ? G0 : EMPTY) << (5 + 3 * slot);
	return header;
}

static void seal(uint8_t *flit)
{
	uint16_t crc = htole16(flit_crc16(flit + PAYLOAD));

	flit[0] = flit[1] = CACHEMEM;
	memcpy(flit + CRC_AT, &crc, sizeof(crc));
}

int flit_pack_68(const struct nupa_cxl_message *message, uint8_t *flits)
{
	const struct flit_places *places = flit_places_of(NUPA_FLIT_68, message->channel);
	bool data, enables;
	uint32_t lengths;
	flit_slot slot;

	if (!places)
		return -EINVAL;
	data = flit_has_data(message);
	enables = flit_has_enables(message);
	lengths = (data ? FULL_SIZE : 0) | (enables ? BYTE_ENABLE : 0);
	slot = header_of(formats[message->channel], data ? 3 : 0, lengths);
	if (!flit_header_put(places, message, &slot))
		return -EINVAL;
	memset(flits, 0, data ? 2 * BYTES : BYTES);
	slot_store(flits + PAYLOAD, SLOT_BYTES, slot);
	if (data) {
		uint8_t *second = flits + BYTES;

		/* What has no room rolls over, from slot 1 on (4.2.5). */
		memcpy(flits + PAYLOAD + SLOT_BYTES, message->data, 3 * SLOT_BYTES);
		slot_store(second + PAYLOAD, SLOT_BYTES, header_of(0, enables ? 2 : 1, 0));
		memcpy(second + PAYLOAD + SLOT_BYTES, message->data + 3 * SLOT_BYTES, SLOT_BYTES);
		if (enables)
			slot_store(second + PAYLOAD + 2 * SLOT_BYTES, SLOT_BYTES,
				   message->byte_enables);
		seal(second);
	}
	seal(flits);
	return data ? 2 : 1;
}

static bool is_valid_id(uint8_t id)
{
	return memchr(valid_ids, id, sizeof(valid_ids));
}

/* Table 6-3. */
static int check(const uint8_t *flit, uint32_t *corrected)
{
	uint16_t crc;

	if (flit[0] != flit[1]) {
		if ((flit[0] != CACHEMEM && flit[1] != CACHEMEM) ||
		    (is_valid_id(flit[0]) && is_valid_id(flit[1])))
			return NUPA_FLIT_PROTOCOL_ID;
		++*corrected;
	} else if (flit[0] != CACHEMEM) {
		return NUPA_FLIT_PROTOCOL_ID;
	}
	memcpy(&crc, flit + CRC_AT, sizeof(crc));
	return le16toh(crc) == flit_crc16(flit + PAYLOAD) ? NUPA_FLIT_FINE : NUPA_FLIT_CRC;
}

/* Whether slots from `first` on are empty. */
static bool is_empty(const uint8_t *flit, uint32_t first)
{
	static const uint8_t zeros[3 * SLOT_BYTES];

	return !memcmp(flit + PAYLOAD + first * SLOT_BYTES, zeros, (4 - first) * SLOT_BYTES);
}

/* The second flit of a message with data: its rest, and its byte enables. */
static int unpack_rest(const uint8_t *flit, struct nupa_cxl_message *message, uint32_t *corrected)
{
	bool enables = flit_has_enables(message);
	int fault = check(flit, corrected);

	if (fault)
		return fault;
	if (slot_load(flit + PAYLOAD, SLOT_BYTES) != header_of(0, enables ? 2 : 1, 0) ||
	    !is_empty(flit, enables ? 3 : 2))
		return NUPA_FLIT_SLOT;
	memcpy(message->data + 3 * SLOT_BYTES, flit + PAYLOAD + SLOT_BYTES, SLOT_BYTES);
	if (enables)
		message->byte_enables =
		    (uint64_t)slot_load(flit + PAYLOAD + 2 * SLOT_BYTES, SLOT_BYTES);
	return NUPA_FLIT_FINE;
}

int flit_unpack_68(bool up, const uint8_t *flits, uint32_t n, struct nupa_cxl_message *message,
		   uint32_t *corrected)
{
	flit_slot slot = slot_load(flits + PAYLOAD, SLOT_BYTES);
	uint32_t header = (uint32_t)slot, lengths;
	int fault = check(flits, corrected);
	bool data;

	if (fault)
		return fault;
	if (header & CONTROL)
		return NUPA_FLIT_HEADER;
	message->channel = flit_channel_of(formats, up, header >> 5 & 7);
	if (!message->channel)
		return NUPA_FLIT_SLOT;
	if (!flit_header_take(flit_places_of(NUPA_FLIT_68, message->channel), slot, message))
		return NUPA_FLIT_MESSAGE;
	data = flit_has_data(message);
	lengths = (data ? FULL_SIZE : 0) | (flit_has_enables(message) ? BYTE_ENABLE : 0);
	if ((header & (FULL_SIZE | BYTE_ENABLE)) != lengths)
		return NUPA_FLIT_HEADER;
	if (header >> 8 != header_of(0, data ? 3 : 0, 0) >> 8 || (!data && !is_empty(flits, 1)))
		return NUPA_FLIT_SLOT;
	if (!data)
		return n == 1 ? NUPA_FLIT_FINE : NUPA_FLIT_SLOT;
	if (n < 2)
		return NUPA_FLIT_SHORT;
	memcpy(message->data, flits + PAYLOAD + SLOT_BYTES, 3 * SLOT_BYTES);
	return n == 2 ? unpack_rest(flits + BYTES, message, corrected) : NUPA_FLIT_SLOT;
}
