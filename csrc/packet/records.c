/* SPDX-License-Identifier: BSD-3-Clause
 * Records of NUPA's link type.  The input comes from a file; no byte behind its end is read. */
#include "packet/records.h"
#include "base/bytes.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

static_assert(sizeof(struct nupa_decoded) == 64, "columns are strided over it");

#define VERSION 1
#define HEADER_BYTES 24u
#define TLP_LENGTH_MAX 1024u
#define LINE_BYTES 64u

enum { TLP_CPL = 0x0a, TLP_CPL_LOCKED = 0x0b, TLP_MSG = 0x10, TLP_MSG_LAST = 0x17 };
enum { CXL_REQ = 1, CXL_RWD, CXL_BIRSP, CXL_BISNP, CXL_NDR, CXL_DRS };
enum { D2H_REQ = 1, D2H_RSP, D2H_DATA, H2D_REQ, H2D_RSP, H2D_DATA };
enum { SEGMENT_REMOTE = 1, SEGMENT_REMOTE_BYTES = 16 };

/* PCIe 6.0, 2.2: the first DW, then a header by its type. */
static bool decode_tlp(const uint8_t *p, size_t bytes, struct nupa_decoded *out)
{
	uint32_t length, type;
	bool wide, data;

	if (bytes < 4)
		return false;
	type = p[0] & 0x1f;
	wide = p[0] & 0x20;
	data = p[0] & 0x40;
	out->code = p[0];
	length = (uint32_t)(p[2] & 3) << 8 | p[3];
	length = length ? length : TLP_LENGTH_MAX;
	if (p[0] & 0x80) {
		out->fault = NUPA_DECODED_FAULT_KIND; /* a prefix, or reserved */
		return true;
	}
	if (bytes < (wide ? 16u : 12u))
		return false;
	/* bits 9 and 8 of the tag are in the first DW */
	out->number = (uint32_t)(p[1] >> 7) << 9 | (uint32_t)(p[1] >> 3 & 1) << 8;
	if (type == TLP_CPL || type == TLP_CPL_LOCKED) {
		out->number |= p[10];
		out->status = p[6] >> 5;
		out->length = data ? 4 * length : 0;
		return true;
	}
	out->number |= p[6];
	if (type >= TLP_MSG && type <= TLP_MSG_LAST) {
		out->length = data ? 4 * length : 0;
		return true;
	}
	out->length = 4 * length;
	out->address = wide ? nupa_get64(p + 8) : nupa_get32(p + 8);
	out->address &= ~(uint64_t)3;
	return true;
}

/* docs/packet.md: CXL.mem */
static bool decode_cxl(const uint8_t *p, size_t bytes, struct nupa_decoded *out)
{
	static const uint8_t sizes[] = { [CXL_REQ] = 18,   [CXL_RWD] = 18, [CXL_BIRSP] = 8,
					 [CXL_BISNP] = 18, [CXL_NDR] = 6,  [CXL_DRS] = 6 };
	uint8_t channel;

	if (bytes < 3)
		return false;
	channel = p[0];
	out->code = (uint8_t)(channel << 4 | (p[2] >> 3 & 0xf));
	if (channel < CXL_REQ || channel > CXL_DRS) {
		out->fault = NUPA_DECODED_FAULT_KIND;
		return true;
	}
	if (bytes < 2u + sizes[channel])
		return false;
	p += 2;
	if (channel == CXL_BIRSP || channel == CXL_BISNP)
		out->number = nupa_get16(p + 4) >> 4;
	else
		out->number = nupa_get16(p + 2);
	if (channel == CXL_REQ || channel == CXL_RWD || channel == CXL_BISNP)
		out->address = nupa_get64(p + 10);
	out->length = channel == CXL_RWD || channel == CXL_DRS ? LINE_BYTES : 0;
	return true;
}

/* docs/packet.md: CXL.cache */
static bool decode_cache(const uint8_t *p, size_t bytes, struct nupa_decoded *out)
{
	static const uint8_t sizes[] = { [D2H_REQ] = 14, [D2H_RSP] = 4, [D2H_DATA] = 4,
					 [H2D_REQ] = 14, [H2D_RSP] = 6, [H2D_DATA] = 4 };
	/* Of the opcode and of the 16 bits that begin with a CQID or UQID. */
	static const uint8_t shift[] = {
		[D2H_REQ] = 2, [D2H_RSP] = 2, [H2D_REQ] = 4, [H2D_RSP] = 3, [H2D_DATA] = 0
	};
	static const uint8_t mask[] = {
		[D2H_REQ] = 31, [D2H_RSP] = 31, [H2D_REQ] = 7, [H2D_RSP] = 15, [H2D_DATA] = 0
	};
	uint8_t channel;

	if (bytes < 17)
		return false;
	channel = p[0];
	out->queue = p[2];
	out->states = nupa_get16(p + 4);
	out->index = nupa_get16(p + 6);
	out->address = nupa_get64(p + 8);
	out->code = (uint8_t)(channel << 5);
	if (channel < D2H_REQ || channel > H2D_DATA) {
		out->fault = NUPA_DECODED_FAULT_KIND;
		return true;
	}
	if (bytes < 16u + sizes[channel])
		return false;
	p += 16;
	out->code = (uint8_t)(out->code | (p[0] >> shift[channel] & mask[channel]));
	out->number = nupa_get16(p + (channel == H2D_RSP ? 3 : 1)) >> 4;
	out->length = channel == D2H_DATA || channel == H2D_DATA ? LINE_BYTES : 0;
	return true;
}

static bool decode_doorbell(const uint8_t *p, size_t bytes, struct nupa_decoded *out)
{
	if (bytes < 16)
		return false;
	out->queue = p[1];
	out->number = nupa_get32(p + 4);
	out->index = nupa_get64(p + 8);
	return true;
}

static bool decode_wqe(const uint8_t *p, size_t bytes, struct nupa_decoded *out)
{
	size_t at = 40, end;

	if (bytes < at)
		return false;
	out->queue = p[1];
	out->code = p[2];
	out->number = nupa_get32(p + 8);
	out->index = nupa_get64(p + 16);
	out->wr_id = nupa_get64(p + 24);
	out->length = nupa_get32(p + 32);
	end = nupa_get16(p + 6);
	if (end < at) {
		out->fault = NUPA_DECODED_FAULT_LENGTH;
		return true;
	}
	while (at < end) {
		size_t size;

		if (bytes < at + 4 || end < at + 4)
			return false;
		size = nupa_get16(p + at + 2);
		if (size < 4 || size > end - at) {
			out->fault = NUPA_DECODED_FAULT_LENGTH;
			return true;
		}
		if (p[at] == SEGMENT_REMOTE && size >= SEGMENT_REMOTE_BYTES) {
			if (bytes < at + SEGMENT_REMOTE_BYTES)
				return false;
			out->address = nupa_get64(p + at + 4);
			return true; /* the rest has no field that is asked for */
		}
		at += size;
	}
	return true;
}

static bool decode_cqe(const uint8_t *p, size_t bytes, struct nupa_decoded *out)
{
	if (bytes < 64)
		return false;
	out->status = p[1];
	out->code = p[2];
	out->number = nupa_get32(p + 8);
	out->wr_id = nupa_get64(p + 16);
	out->index = nupa_get64(p + 24);
	out->length = nupa_get32(p + 32);
	return true;
}

static bool decode_kind(const uint8_t *p, size_t bytes, struct nupa_decoded *out)
{
	switch (out->kind) {
	case NUPA_DECODED_TLP:
		return decode_tlp(p, bytes, out);
	case NUPA_DECODED_CXL_MEM:
		return decode_cxl(p, bytes, out);
	case NUPA_DECODED_DOORBELL:
		return decode_doorbell(p, bytes, out);
	case NUPA_DECODED_WQE:
		return decode_wqe(p, bytes, out);
	case NUPA_DECODED_CQE:
		return decode_cqe(p, bytes, out);
	case NUPA_DECODED_CXL_CACHE:
		return decode_cache(p, bytes, out);
	case NUPA_DECODED_ETHERNET:
		out->length = (uint32_t)bytes;
		return true;
	default:
		out->fault = NUPA_DECODED_FAULT_KIND;
		return true;
	}
}

static void decode_one(const uint8_t *p, size_t bytes, struct nupa_decoded *out)
{
	out->fault = NUPA_DECODED_FAULT_CUT;
	if (bytes < 1)
		return;
	out->version = p[0];
	if (p[0] != VERSION) {
		out->fault = NUPA_DECODED_FAULT_VERSION;
		return;
	}
	if (bytes < HEADER_BYTES)
		return;
	out->level = p[2];
	out->kind = p[3];
	out->direction = p[4];
	out->flags = nupa_get16(p + 6);
	out->transfer = nupa_get64(p + 8);
	out->port = nupa_get16(p + 16);
	out->host = nupa_get16(p + 18);
	out->sequence = nupa_get32(p + 20);
	out->payload_offset = p[1];
	if (p[1] < HEADER_BYTES) {
		out->fault = NUPA_DECODED_FAULT_LENGTH;
		return;
	}
	if (bytes < p[1])
		return;
	out->fault = NUPA_DECODED_FAULT_NONE;
	if (!decode_kind(p + p[1], bytes - p[1], out))
		out->fault = NUPA_DECODED_FAULT_CUT;
}

uint64_t nupa_decode_records(const uint8_t *data, size_t bytes, const struct nupa_span *spans,
			     size_t stride_bytes, size_t n, const uint32_t *links, uint32_t n_links,
			     struct nupa_decoded *out)
{
	const uint8_t *next = (const uint8_t *)spans;
	uint64_t good = 0;

	for (size_t i = 0; i < n; i++, next += stride_bytes) {
		struct nupa_span span;

		memcpy(&span, next, sizeof(span));
		memset(&out[i], 0, sizeof(out[i]));
		if (span.interface >= n_links || span.offset > bytes ||
		    span.captured_bytes > bytes - span.offset)
			out[i].fault = NUPA_DECODED_FAULT_SPAN;
		else if (links[span.interface] != NUPA_LINKTYPE_NUPA)
			out[i].fault = NUPA_DECODED_FAULT_LINK;
		else
			decode_one(data + span.offset, span.captured_bytes, &out[i]);
		good += out[i].fault == NUPA_DECODED_FAULT_NONE;
	}
	return good;
}
