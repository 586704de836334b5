/* SPDX-License-Identifier: BSD-3-Clause
 * Finds packets in a classic pcap file.  The input comes from the file and is checked. */
#include "packet/pcapng.h"

#include <string.h>

/* draft-ietf-opsawg-pcap, 5: seconds, their fraction, captured and original length */
#define HEADER_BYTES 16u

static uint32_t get32(const uint8_t *p, bool swapped)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return swapped ? __builtin_bswap32(v) : v;
}

uint32_t nupa_pcap_scan(const uint8_t *data, size_t bytes, bool swapped,
			const struct nupa_pcapng_interface *interfaces, uint32_t n_interfaces,
			struct nupa_pcapng_record *records, uint32_t max, size_t *place,
			const char **why)
{
	uint64_t ns_mul = n_interfaces ? interfaces->ns_mul : 1;
	uint32_t n = 0;
	size_t at = *place;

	*why = NULL;
	while (n < max && bytes - at >= HEADER_BYTES) {
		struct nupa_pcapng_record *r = &records[n];
		uint64_t fraction_ns = get32(data + at + 4, swapped) * ns_mul;
		uint32_t captured = get32(data + at + 8, swapped);

		if (fraction_ns >= 1000000000)
			*why = "the fraction of its time is a second or more";
		else if (captured > NUPA_PCAPNG_BLOCK_BYTES_MAX)
			*why = "it is longer than 16 MiB";
		if (*why || captured > bytes - at - HEADER_BYTES)
			break;
		memset(r, 0, sizeof(*r));
		r->ts_ns = get32(data + at, swapped) * 1000000000ull + fraction_ns;
		r->offset = (uint32_t)(at + HEADER_BYTES);
		r->captured_bytes = captured;
		r->original_bytes = get32(data + at + 12, swapped);
		if (r->original_bytes < captured) {
			*why = "more bytes were captured than it had";
			break;
		}
		at += HEADER_BYTES + captured;
		n++;
	}
	*place = at;
	return n;
}
