/* SPDX-License-Identifier: BSD-3-Clause
 * Splits an access to memory into the PCIe TLPs or CXL.mem messages that cross a link.  A test
 * compares it with a second implementation, tests/unit/packet/split.py and encode.py. */
#ifndef NUPA_SPLIT_H
#define NUPA_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

/* The links of a fabric, as configured. */
#define NUPA_LINK_MPS_BYTES 256u  /* Max_Payload_Size (PCIe 6.0, 7.5.3.4) */
#define NUPA_LINK_MRRS_BYTES 512u /* Max_Read_Request_Size */
#define NUPA_LINK_RCB_BYTES 64u   /* Read Completion Boundary (7.5.3.7) */
#define NUPA_LINK_TAGS 256u       /* of a requester (2.2.6.2) */
#define NUPA_CXL_LINE_BYTES 64u

enum nupa_access {
	NUPA_ACCESS_READ,
	NUPA_ACCESS_WRITE,
	NUPA_ACCESS_FETCH_ADD, /* of 8 bytes */
	NUPA_ACCESS_CAS,
	NUPA_ACCESS_CXL_LOAD,
	NUPA_ACCESS_CXL_STORE,
	NUPA_ACCESS_CXL_ATOMIC, /* of 8 bytes */
};

/* The data field of a TLP or message. */
enum nupa_carries {
	NUPA_CARRIES_NOTHING,
	NUPA_CARRIES_DATA,     /* bytes of the access, from `offset` on */
	NUPA_CARRIES_OPERANDS, /* of an atomic */
	NUPA_CARRIES_OLD,      /* the value before an atomic */
	NUPA_CARRIES_NEW,      /* and after it */
};

/* An access, and the current TLP or message of it. */
struct nupa_split {
	uint8_t access; /* enum nupa_access */
	uint8_t step, next_step;
	uint64_t at, end;           /* still to be requested */
	uint64_t read_at, read_end; /* still to be completed */
	uint64_t start;
	uint32_t tag; /* of the next request */
	bool done;

	uint8_t code; /* Fmt and Type of a TLP; channel of a message */
	uint8_t opcode;
	uint8_t first_be, last_be;
	uint8_t carries; /* enum nupa_carries */
	uint8_t data_at; /* where in its data field that begins */
	bool completes;  /* goes the other way */
	uint32_t this_tag;
	uint64_t address;
	uint32_t bytes, dw, byte_count, lower_address;
	uint64_t offset; /* in the access */
	uint64_t enables;
};

/* tag: of the first request; they count up.  An atomic is aligned. */
void nupa_split_begin(struct nupa_split *split, enum nupa_access access, uint64_t address,
		      uint64_t bytes, uint32_t tag);
/* The next TLP or message; false: there is none. */
bool nupa_split_next(struct nupa_split *split);
/* Whether this is the last one. */
bool nupa_split_is_last(const struct nupa_split *split);
static inline bool nupa_split_is_cxl(const struct nupa_split *split)
{
	return split->access >= NUPA_ACCESS_CXL_LOAD;
}
/* Writes the bytes of the current one, with zeros for its data.  Returns their number, at most 24 +
 * NUPA_LINK_MPS_BYTES + 4.  The data's place is *data_at, and its length `bytes` (4 * dw for
 * operands). */
uint32_t nupa_split_build(const struct nupa_split *split, uint16_t requester, uint16_t completer,
			  bool poisoned, uint8_t *out, uint32_t *data_at);
#define NUPA_SPLIT_MAX_BYTES (32u + NUPA_LINK_MPS_BYTES)

#endif
