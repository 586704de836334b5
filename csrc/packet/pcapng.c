/* SPDX-License-Identifier: BSD-3-Clause
 * Finds packets in a pcapng file.  The input comes from the file and is checked. */
#include "packet/pcapng.h"

#include <string.h>

/* draft-ietf-opsawg-pcapng, 4.2 to 4.5 */
enum {
	BLOCK_PACKET = 2, /* obsolete; old files have it */
	BLOCK_SIMPLE = 3,
	BLOCK_ENHANCED = 6,
};
enum { OPT_END = 0, OPT_FLAGS = 2, OPT_DROPCOUNT = 4, OPT_PACKETID = 5 };

#define BLOCK_HEADER_BYTES 8u
#define BLOCK_TRAILER_BYTES 4u

struct scan {
	const uint8_t *data;
	bool swapped;
	const struct nupa_pcapng_interface *interfaces;
	uint32_t n_interfaces;
};

static uint16_t get16(const struct scan *s, const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return s->swapped ? __builtin_bswap16(v) : v;
}

static uint32_t get32(const struct scan *s, const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return s->swapped ? __builtin_bswap32(v) : v;
}

static uint64_t get64(const struct scan *s, const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return s->swapped ? __builtin_bswap64(v) : v;
}

static uint64_t padded(uint32_t bytes)
{
	return ((uint64_t)bytes + 3) & ~(uint64_t)3;
}

static const char *convert_time(const struct nupa_pcapng_interface *interface, uint64_t ticks,
				uint64_t *ts_ns)
{
	__int128 ns = (__int128)ticks * interface->ns_mul / interface->ns_div +
		      (__int128)interface->offset_s * 1000000000;

	if (ns < 0 || ns > UINT64_MAX)
		return "its timestamp lies before 1970 or after 2554";
	*ts_ns = (uint64_t)ns;
	return NULL;
}

/* Takes the options that are numbers; remembers the place of others. */
static const char *take_options(const struct scan *s, size_t at, size_t end,
				struct nupa_pcapng_record *r)
{
	size_t begin = at;
	bool others = false;

	while (end - at >= 4) {
		uint16_t code = get16(s, s->data + at);
		uint16_t length = get16(s, s->data + at + 2);
		const uint8_t *value = s->data + at + 4;

		if (code == OPT_END)
			break;
		if (padded(length) > end - at - 4)
			return "an option is longer than the room for options";
		if (code == OPT_FLAGS && length == 4)
			r->flags = get32(s, value);
		else if (code == OPT_DROPCOUNT && length == 8)
			r->drops = get64(s, value);
		else if (code == OPT_PACKETID && length == 8)
			r->packet_id = get64(s, value);
		else if (code == OPT_FLAGS || code == OPT_DROPCOUNT || code == OPT_PACKETID)
			return "the length of an option is wrong for its code";
		else
			others = true;
		at += 4 + padded(length);
	}
	if (others) {
		r->options_offset = (uint32_t)begin;
		r->options_bytes = (uint32_t)(end - begin);
	}
	return NULL;
}

/* The block at `at`, whose `total` bytes are all present. */
static const char *take_packet(const struct scan *s, uint32_t type, size_t at, uint32_t total,
			       struct nupa_pcapng_record *r)
{
	const uint8_t *body = s->data + at + BLOCK_HEADER_BYTES;
	size_t fixed = type == BLOCK_SIMPLE ? 4 : 20;
	size_t room = total - BLOCK_HEADER_BYTES - BLOCK_TRAILER_BYTES;
	const struct nupa_pcapng_interface *interface;
	const char *why;

	memset(r, 0, sizeof(*r));
	if (room < fixed)
		return "it is too short for its type";
	room -= fixed;
	if (type == BLOCK_SIMPLE)
		r->interface = 0;
	else if (type == BLOCK_PACKET)
		r->interface = get16(s, body);
	else
		r->interface = get32(s, body);
	if (r->interface >= s->n_interfaces)
		return "its interface was not described before";
	interface = &s->interfaces[r->interface];
	if (type == BLOCK_SIMPLE) {
		r->original_bytes = get32(s, body);
		r->captured_bytes = r->original_bytes;
		if (interface->snaplen && r->captured_bytes > interface->snaplen)
			r->captured_bytes = interface->snaplen;
	} else {
		uint64_t ticks = (uint64_t)get32(s, body + 4) << 32 | get32(s, body + 8);

		why = convert_time(interface, ticks, &r->ts_ns);
		if (why)
			return why;
		r->captured_bytes = get32(s, body + 12);
		r->original_bytes = get32(s, body + 16);
	}
	r->offset = (uint32_t)(at + BLOCK_HEADER_BYTES + fixed);
	if (padded(r->captured_bytes) > room)
		return "its packet is longer than the block";
	if (type == BLOCK_SIMPLE)
		return NULL;
	return take_options(s, r->offset + padded(r->captured_bytes),
			    at + total - BLOCK_TRAILER_BYTES, r);
}

uint32_t nupa_pcapng_scan(const uint8_t *data, size_t bytes, bool swapped,
			  const struct nupa_pcapng_interface *interfaces, uint32_t n_interfaces,
			  struct nupa_pcapng_record *records, uint32_t max, size_t *place,
			  const char **why)
{
	struct scan s = { data, swapped, interfaces, n_interfaces };
	uint32_t n = 0;
	size_t at = *place;

	*why = NULL;
	while (n < max && bytes - at >= BLOCK_HEADER_BYTES + BLOCK_TRAILER_BYTES) {
		uint32_t type = get32(&s, data + at);
		uint32_t total = get32(&s, data + at + 4);

		if (type != BLOCK_ENHANCED && type != BLOCK_SIMPLE && type != BLOCK_PACKET)
			break;
		if (total % 4 || total < BLOCK_HEADER_BYTES + BLOCK_TRAILER_BYTES)
			*why = "its length is invalid for a block";
		else if (total > NUPA_PCAPNG_BLOCK_BYTES_MAX)
			*why = "it is longer than 16 MiB";
		else if (total > bytes - at)
			break;
		else if (get32(&s, data + at + total - BLOCK_TRAILER_BYTES) != total)
			*why = "the lengths at its two ends differ";
		else
			*why = take_packet(&s, type, at, total, &records[n]);
		if (*why)
			break;
		n++;
		at += total;
	}
	*place = at;
	return n;
}
