/* SPDX-License-Identifier: BSD-3-Clause
 * Writes packets as blocks of a pcapng file.  Records come from a scan or a capture; their places
 * are checked against the data. */
#include "packet/pcapng.h"

#include <string.h>

enum { OPT_END = 0, OPT_FLAGS = 2, OPT_DROPCOUNT = 4, OPT_PACKETID = 5, OPT_QUEUE = 6 };

#define BLOCK_ENHANCED 6u
#define FIXED_BYTES 28u /* before the data */
#define TRAILER_BYTES 4u
#define NUMBERS_BYTES (8u + 12u + 12u + 4u) /* the options that are numbers, and the end of all */

static uint8_t *put16(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)value;
	to[1] = (uint8_t)(value >> 8);
	return to + 2;
}

static uint8_t *put32(uint8_t *to, uint32_t value)
{
	return put16(put16(to, value), value >> 16);
}

static uint8_t *put64(uint8_t *to, uint64_t value)
{
	return put32(put32(to, (uint32_t)value), (uint32_t)(value >> 32));
}

static uint8_t *put_padded(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	uint32_t pad = -bytes & 3;

	memcpy(to, from, bytes);
	memset(to + bytes, 0, pad);
	return to + bytes + pad;
}

static uint32_t get16(const uint8_t *p, bool big)
{
	return big ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

/* Copies the options that are not in the record itself.  NULL: they are malformed. */
static uint8_t *put_others(uint8_t *to, const uint8_t *from, size_t bytes, bool big)
{
	while (bytes >= 4) {
		uint32_t code = get16(from, big), length = get16(from + 2, big);
		size_t padded = (size_t)((length + 3) & ~3u);

		if (code == OPT_END)
			break;
		from += 4;
		bytes -= 4;
		if (padded > bytes)
			return NULL;
		if (code == OPT_QUEUE && length == 4 && big) {
			to = put32(put16(put16(to, code), length),
				   get16(from, big) << 16 | get16(from + 2, big));
		} else if (code != OPT_FLAGS && code != OPT_DROPCOUNT && code != OPT_PACKETID) {
			to = put_padded(put16(put16(to, code), length), from, length);
		}
		from += padded;
		bytes -= padded;
	}
	return to;
}

static uint8_t *put_options(uint8_t *to, const uint8_t *data, bool big,
			    const struct nupa_pcapng_record *r)
{
	uint8_t *begin = to;

	if (r->flags)
		to = put32(put16(put16(to, OPT_FLAGS), 4), r->flags);
	if (r->drops)
		to = put64(put16(put16(to, OPT_DROPCOUNT), 8), r->drops);
	if (r->packet_id)
		to = put64(put16(put16(to, OPT_PACKETID), 8), r->packet_id);
	if (r->options_offset) {
		to = put_others(to, data + r->options_offset, r->options_bytes, big);
		if (!to)
			return NULL;
	}
	return to == begin ? to : put32(to, 0);
}

static bool is_inside(uint64_t offset, uint64_t length, size_t bytes)
{
	return offset <= bytes && length <= bytes - offset;
}

uint32_t nupa_pcapng_format(const uint8_t *data, size_t bytes, bool swapped,
			    const struct nupa_pcapng_record *records, uint32_t n_records,
			    const uint32_t *which, uint32_t n, const uint32_t *numbers,
			    const uint32_t *snaplens, uint32_t n_interfaces, uint8_t *out,
			    size_t room, size_t *used, const char **why)
{
	bool big = swapped == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
	uint8_t *to = out;
	uint32_t i;

	*why = NULL;
	for (i = 0; i < n; i++) {
		uint32_t index = which ? which[i] : i, size, total;
		const struct nupa_pcapng_record *r;
		uint8_t *block = to;

		if (index >= n_records) {
			*why = "there is no such record";
			break;
		}
		r = &records[index];
		if (r->interface >= n_interfaces) {
			*why = "its interface is not among the named ones";
			break;
		}
		if (!is_inside(r->offset, r->captured_bytes, bytes) ||
		    !is_inside(r->options_offset, r->options_bytes, bytes)) {
			*why = "it lies outside the data";
			break;
		}
		size = r->captured_bytes;
		if (snaplens[r->interface] && size > snaplens[r->interface])
			size = snaplens[r->interface];
		/* its largest size: bounded by the data, so no overflow */
		if ((uint64_t)FIXED_BYTES + size + 3 + NUMBERS_BYTES + r->options_bytes +
			TRAILER_BYTES >
		    room - (size_t)(to - out))
			break;
		to = put32(put32(to, BLOCK_ENHANCED), 0);
		to = put32(to, numbers[r->interface]);
		to = put32(put32(to, (uint32_t)(r->ts_ns >> 32)), (uint32_t)r->ts_ns);
		to = put32(put32(to, size), r->original_bytes);
		to = put_padded(to, data + r->offset, size);
		to = put_options(to, data, big, r);
		if (!to) {
			*why = "its options are malformed";
			to = block;
			break;
		}
		total = (uint32_t)(to - block) + TRAILER_BYTES;
		if (total > NUPA_PCAPNG_BLOCK_BYTES_MAX) {
			*why = "it is longer than 16 MiB";
			to = block;
			break;
		}
		put32(block + 4, total);
		to = put32(to, total);
	}
	*used = (size_t)(to - out);
	return i;
}
