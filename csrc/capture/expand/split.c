/* SPDX-License-Identifier: BSD-3-Clause
 * Accesses as TLPs (PCIe 6.0, chapter 2) and CXL.mem messages (CXL 3.1, 3.3). */
#include "capture/expand/split.h"

#include "base/bytes.h"

#include <string.h>

#define MRD 0x00u
#define MWR 0x40u
#define FETCH_ADD 0x4cu
#define CAS 0x4eu
#define CPLD 0x4au
#define WITH_64_BITS 0x20u

/* CXL.mem: channels, and opcodes in them. */
enum { M2S_REQ = 1, M2S_RWD = 2, S2M_NDR = 5, S2M_DRS = 6 };
enum { MEM_RD = 1, MEM_WR = 1, MEM_WR_PTL = 2, CMP = 0, MEM_DATA = 0 };
#define FLIT_256B 1
#define VALID 0x80u
#define NO_META (3u << 6)

void nupa_split_begin(struct nupa_split *split, enum nupa_access access, uint64_t address,
		      uint64_t bytes, uint32_t tag)
{
	*split = (struct nupa_split){
		.access = (uint8_t)access,
		.at = address,
		.end = address + bytes,
		.start = address,
		.tag = tag,
		/* No request of its own reads or writes data in the pool. */
		.done = !bytes && access >= NUPA_ACCESS_CXL_LOAD,
	};
}

/* 2.2.5: DWs and byte enables of a request. */
static void enable(struct nupa_split *split)
{
	uint32_t start = (uint32_t)split->address & 3, end = start + split->bytes;
	uint8_t first, last;

	if (!split->bytes) {
		split->dw = 1;
		split->first_be = split->last_be = 0;
		return;
	}
	split->dw = (end + 3) / 4;
	first = (uint8_t)(0xf << start & 0xf);
	last = (uint8_t)(0xf >> (-end & 3));
	split->first_be = split->dw == 1 ? first & last : first;
	split->last_be = split->dw == 1 ? 0 : last;
}

/* The next piece of what is still to be requested, cut at multiples of *size*. */
static void request(struct nupa_split *split, uint8_t code, uint32_t size)
{
	uint64_t cut = (split->at / size + 1) * size;

	if (cut > split->end || cut < split->at)
		cut = split->end;
	split->code = code;
	split->completes = false;
	split->address = split->at;
	split->bytes = (uint32_t)(cut - split->at);
	split->offset = split->at - split->start;
	split->this_tag = 0;
	enable(split);
	split->at = cut;
}

static void take_tag(struct nupa_split *split, uint32_t tags)
{
	split->this_tag = split->tag;
	split->tag = (split->tag + 1) % tags;
}

/* 2.3.1.1: in order, cut at multiples of RCB only, as long as MPS allows. */
static void complete(struct nupa_split *split)
{
	uint64_t at = split->read_at;
	uint64_t cut = (at + NUPA_LINK_MPS_BYTES) / NUPA_LINK_RCB_BYTES * NUPA_LINK_RCB_BYTES;

	if (cut > split->read_end || cut < at)
		cut = split->read_end;
	split->code = CPLD;
	split->completes = true;
	split->carries = NUPA_CARRIES_DATA;
	split->address = at;
	split->bytes = (uint32_t)(cut - at);
	split->offset = at - split->start;
	enable(split);
	/* A flush returns one byte by this count. */
	split->byte_count = split->bytes ? (uint32_t)(split->read_end - at) : 1;
	split->lower_address = (uint32_t)at & (split->bytes ? 0x7f : 0x7c);
	split->read_at = cut;
	if (cut == split->read_end) {
		split->next_step = 0;
		split->done = split->at == split->end;
	}
}

static void next_read(struct nupa_split *split)
{
	if (split->next_step) {
		complete(split);
		return;
	}
	split->carries = NUPA_CARRIES_NOTHING;
	request(split, MRD, NUPA_LINK_MRRS_BYTES);
	take_tag(split, NUPA_LINK_TAGS);
	split->read_at = split->address;
	split->read_end = split->at;
	split->next_step = 1;
}

/* 2.2.7: one request with its operands, one completion with the former value. */
static void next_atomic(struct nupa_split *split)
{
	split->address = split->start;
	split->bytes = 8;
	split->first_be = split->last_be = 0;
	if (!split->next_step) {
		split->code = split->access == NUPA_ACCESS_CAS ? CAS : FETCH_ADD;
		split->dw = split->access == NUPA_ACCESS_CAS ? 4 : 2;
		split->completes = false;
		split->carries = NUPA_CARRIES_OPERANDS;
		take_tag(split, NUPA_LINK_TAGS);
		split->next_step = 1;
		return;
	}
	split->code = CPLD;
	split->dw = 2;
	split->completes = true;
	split->carries = NUPA_CARRIES_OLD;
	split->byte_count = 8;
	split->lower_address = 0; /* 2.2.9 */
	split->done = true;
}

/* Line by line; CXL.mem has no atomics: the host reads the line, changes it, and writes it back
 * whole. */
static void next_cxl(struct nupa_split *split)
{
	const bool atomic = split->access == NUPA_ACCESS_CXL_ATOMIC;
	uint32_t in_line;
	bool whole;

	if (!split->next_step) { /* a line begins: read it, or go on with its write */
		request(split, 0, NUPA_CXL_LINE_BYTES);
		split->data_at = (uint8_t)(split->address % NUPA_CXL_LINE_BYTES);
		split->address -= split->data_at;
		split->next_step = split->access == NUPA_ACCESS_CXL_STORE ? 3 : 1;
	}
	in_line = split->data_at;
	whole = atomic || split->bytes == NUPA_CXL_LINE_BYTES;
	split->enables = 0;
	switch (split->next_step++) {
	case 1:
		take_tag(split, 0x10000);
		split->code = M2S_REQ;
		split->opcode = MEM_RD;
		split->carries = NUPA_CARRIES_NOTHING;
		split->completes = false;
		return;
	case 2:
		split->code = S2M_DRS;
		split->opcode = MEM_DATA;
		split->carries = atomic ? NUPA_CARRIES_OLD : NUPA_CARRIES_DATA;
		split->completes = true;
		if (atomic)
			return;
		break;
	case 3:
		take_tag(split, 0x10000);
		split->code = M2S_RWD;
		split->opcode = whole ? MEM_WR : MEM_WR_PTL;
		if (!whole)
			split->enables = ((UINT64_C(1) << split->bytes) - 1) << in_line;
		split->carries = atomic ? NUPA_CARRIES_NEW : NUPA_CARRIES_DATA;
		split->completes = false;
		return;
	default:
		split->code = S2M_NDR;
		split->opcode = CMP;
		split->carries = NUPA_CARRIES_NOTHING;
		split->completes = true;
		break;
	}
	split->next_step = 0;
	split->done = split->at == split->end;
}

bool nupa_split_next(struct nupa_split *split)
{
	if (split->done)
		return false;
	switch (split->access) {
	case NUPA_ACCESS_READ:
		next_read(split);
		break;
	case NUPA_ACCESS_WRITE:
		split->carries = NUPA_CARRIES_DATA;
		request(split, MWR, NUPA_LINK_MPS_BYTES);
		split->done = split->at == split->end;
		break;
	case NUPA_ACCESS_FETCH_ADD:
	case NUPA_ACCESS_CAS:
		next_atomic(split);
		break;
	default:
		next_cxl(split);
		break;
	}
	return true;
}

bool nupa_split_is_last(const struct nupa_split *split)
{
	return split->done;
}

/* --- bytes --------------------------------------------------------------------------- */

static uint32_t build_cxl(const struct nupa_split *split, bool poisoned, uint8_t *out,
			  uint32_t *data_at)
{
	const bool has_data = split->code == M2S_RWD || split->code == S2M_DRS;
	uint8_t *at = out;

	*at++ = split->code;
	*at++ = FLIT_256B;
	*at++ = (uint8_t)(VALID | (uint32_t)split->opcode << 3);
	if (split->completes) {
		*at++ = (uint8_t)(NO_META | (has_data && poisoned ? 2 : 0));
		at = nupa_put(at, split->this_tag, 2);
		at = nupa_put(at, 0, 2);
	} else {
		*at++ = (uint8_t)(NO_META | (split->enables ? 1 : 0));
		at = nupa_put(at, split->this_tag, 2);
		at = nupa_put(at, 0, 6);
		at = nupa_put(at, split->address, 8);
	}
	*data_at = (uint32_t)(at - out);
	if (!has_data)
		return *data_at;
	if (split->enables)
		at = nupa_put(at, split->enables, 8);
	memset(at, 0, NUPA_CXL_LINE_BYTES);
	*data_at = (uint32_t)(at - out) + split->data_at;
	return (uint32_t)(at - out) + NUPA_CXL_LINE_BYTES;
}

uint32_t nupa_split_build(const struct nupa_split *split, uint16_t requester, uint16_t completer,
			  bool poisoned, uint8_t *out, uint32_t *data_at)
{
	const bool wide = !split->completes && split->address >> 32;
	uint8_t *at = out;

	if (nupa_split_is_cxl(split))
		return build_cxl(split, poisoned, out, data_at);
	*at++ = (uint8_t)(split->code | (wide ? WITH_64_BITS : 0));
	*at++ = 0; /* tags of 8 bits */
	at = nupa_put(at, (split->dw & 0x3ff) | (poisoned && split->code != MRD ? 1u << 14 : 0), 2);
	if (split->completes) {
		at = nupa_put(at, completer, 2);
		at = nupa_put(at, split->byte_count & 0xfff, 2);
		at = nupa_put(at, requester, 2);
		*at++ = (uint8_t)split->this_tag;
		*at++ = (uint8_t)split->lower_address;
	} else {
		at = nupa_put(at, requester, 2);
		*at++ = (uint8_t)split->this_tag;
		*at++ = (uint8_t)(split->last_be << 4 | split->first_be);
		at = nupa_put(at, split->address & ~UINT64_C(3), wide ? 8 : 4);
	}
	*data_at = (uint32_t)(at - out);
	if (split->carries == NUPA_CARRIES_NOTHING)
		return *data_at;
	memset(at, 0, (size_t)4 * split->dw);
	*data_at += (uint32_t)split->address & 3;
	return (uint32_t)(at - out) + 4 * split->dw;
}
