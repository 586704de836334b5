/* SPDX-License-Identifier: BSD-3-Clause
 * Records of NUPA's link type, many at once.  Filters, statistics and traces use these fields of
 * PCIe TLPs, CXL.mem messages and queue entries.  docs/packet.md has the format. */
#ifndef NUPA_PACKET_RECORDS_H
#define NUPA_PACKET_RECORDS_H

#include "packet/decode.h"

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
enum nupa_decoded_kind {
	NUPA_DECODED_TLP = 1,
	NUPA_DECODED_CXL_MEM = 2,
	NUPA_DECODED_DOORBELL = 3,
	NUPA_DECODED_WQE = 4,
	NUPA_DECODED_CQE = 5,
	NUPA_DECODED_ETHERNET = 6,
	NUPA_DECODED_CXL_CACHE = 7,
};

enum nupa_decoded_fault {
	NUPA_DECODED_FAULT_NONE,
	NUPA_DECODED_FAULT_SPAN, /* the span lies outside the buffer, or its interface is unknown */
	NUPA_DECODED_FAULT_LINK, /* another link type */
	NUPA_DECODED_FAULT_CUT,  /* the record ends before the fields decoded here */
	NUPA_DECODED_FAULT_VERSION, /* of another version: only `version` is known */
	NUPA_DECODED_FAULT_LENGTH,  /* lengths contradict each other */
	NUPA_DECODED_FAULT_KIND,    /* the content after the header is not known here */
};

#define NUPA_LINKTYPE_NUPA 158

/* One record, in the host's byte order; absent fields are 0. */
struct nupa_decoded {
	uint64_t transfer;
	uint64_t address; /* TLP: of a request; CXL.mem; CXL.cache: the line; WQE: the remote one */
	uint64_t wr_id;   /* WQE, CQE */
	uint64_t index;   /* doorbell, WQE, CQE; CXL.cache: the other host */
	uint32_t sequence;
	uint32_t payload_offset; /* of the content after the header, from the record's first byte */
	uint32_t length;         /* bytes: TLP: of data that it has or asks for; CXL: 64 if it has
				  * data; WQE, CQE: as they say */
	uint32_t number; /* TLP, CXL.mem: tag; CXL.cache: CQID, UQID; doorbell, WQE, CQE: of the QP,
			    SRQ or CQ */
	uint16_t port, host, flags;
	uint8_t version, level, kind, direction;
	uint8_t code; /* TLP: fmt << 5 | type; CXL.mem: channel << 4 | opcode; CXL.cache: channel <<
		       * 5 | opcode; else opcode */
	uint8_t status;  /* Cpl, CQE */
	uint8_t queue;   /* doorbell, WQE; CXL.cache: the kind of line */
	uint8_t fault;   /* enum nupa_decoded_fault */
	uint16_t states; /* CXL.cache, 4 bits each: this cache before, after, the other one */
};

/* Decodes n records of `data` into out[0 .. n).  Spans lie stride_bytes apart; links[i] is the link
 * type of interface i.  Returns how many have no fault.  No data makes it fail. */
uint64_t nupa_decode_records(const uint8_t *data, size_t bytes, const struct nupa_span *spans,
			     size_t stride_bytes, size_t n, const uint32_t *links, uint32_t n_links,
			     struct nupa_decoded *out);
/* cffi: end */

#endif
