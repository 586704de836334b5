/* SPDX-License-Identifier: BSD-3-Clause
 * The opcodes of IBTA table 38, annexes A14 (XRC), A17 (CNP) and A19 (FLUSH, ATOMIC WRITE). */
#include "packet/opcodes.h"

#define RDETH NUPA_HEADER_RDETH
#define XRCETH NUPA_HEADER_XRCETH
#define DETH NUPA_HEADER_DETH
#define FETH NUPA_HEADER_FETH
#define RETH NUPA_HEADER_RETH
#define ATOMICETH NUPA_HEADER_ATOMICETH
#define AETH NUPA_HEADER_AETH
#define ATOMICACKETH NUPA_HEADER_ATOMICACKETH
#define IMMDT NUPA_HEADER_IMMDT
#define IETH NUPA_HEADER_IETH
#define CNP NUPA_HEADER_CNP

#define BYTES(headers)                                                                             \
	((headers)&RDETH ? 4 : 0) + ((headers)&XRCETH ? 4 : 0) + ((headers)&DETH ? 8 : 0) +        \
	    ((headers)&FETH ? 4 : 0) + ((headers)&RETH ? 16 : 0) +                                 \
	    ((headers)&ATOMICETH ? 28 : 0) + ((headers)&AETH ? 4 : 0) +                            \
	    ((headers)&ATOMICACKETH ? 8 : 0) + ((headers)&IMMDT ? 4 : 0) +                         \
	    ((headers)&IETH ? 4 : 0) + ((headers)&CNP ? 16 : 0)

#define ENTRY(code, of_headers, is_request, has_payload)                                           \
	[code] = { .headers = (of_headers),                                                        \
		   .bytes = BYTES(of_headers),                                                     \
		   .known = 1,                                                                     \
		   .request = (is_request),                                                        \
		   .payload = (has_payload) }

#define REQUEST(code, headers) ENTRY(code, headers, 1, 1)
#define RESPONSE(code, headers) ENTRY(code, headers, 0, 1)
#define REQUEST_ALONE(code, headers) ENTRY(code, headers, 1, 0) /* no payload */
#define RESPONSE_ALONE(code, headers) ENTRY(code, headers, 0, 0)

/* SEND and RDMA WRITE; `of` stands before the headers of each */
#define SENDS_AND_WRITES(base, of)                                                                 \
	REQUEST((base) + 0x00, of), REQUEST((base) + 0x01, of), REQUEST((base) + 0x02, of),        \
	    REQUEST((base) + 0x03, (of) | IMMDT), REQUEST((base) + 0x04, of),                      \
	    REQUEST((base) + 0x05, (of) | IMMDT), REQUEST((base) + 0x06, (of) | RETH),             \
	    REQUEST((base) + 0x07, of), REQUEST((base) + 0x08, of),                                \
	    REQUEST((base) + 0x09, (of) | IMMDT), REQUEST((base) + 0x0a, (of) | RETH),             \
	    REQUEST((base) + 0x0b, (of) | RETH | IMMDT)

/* RDMA READ, acknowledgements and atomics; `with` stands before the headers of each response */
#define READS_AND_ATOMICS(base, of, with)                                                          \
	REQUEST_ALONE((base) + 0x0c, (of) | RETH), RESPONSE((base) + 0x0d, (with) | AETH),         \
	    RESPONSE((base) + 0x0e, with), RESPONSE((base) + 0x0f, (with) | AETH),                 \
	    RESPONSE((base) + 0x10, (with) | AETH), RESPONSE_ALONE((base) + 0x11, (with) | AETH),  \
	    RESPONSE_ALONE((base) + 0x12, (with) | AETH | ATOMICACKETH),                           \
	    REQUEST_ALONE((base) + 0x13, (of) | ATOMICETH),                                        \
	    REQUEST_ALONE((base) + 0x14, (of) | ATOMICETH)

#define INVALIDATES(base, of)                                                                      \
	REQUEST((base) + 0x16, (of) | IETH), REQUEST((base) + 0x17, (of) | IETH)

static const struct nupa_opcode opcodes[256] = {
	/* RC */
	SENDS_AND_WRITES(0x00, 0),
	READS_AND_ATOMICS(0x00, 0, 0),
	INVALIDATES(0x00, 0),
	REQUEST_ALONE(0x1c, FETH | RETH), /* FLUSH */
	REQUEST(0x1d, RETH),              /* ATOMIC WRITE */
	/* UC */
	SENDS_AND_WRITES(0x20, 0),
	/* RD */
	SENDS_AND_WRITES(0x40, RDETH | DETH),
	READS_AND_ATOMICS(0x40, RDETH | DETH, RDETH),
	REQUEST_ALONE(0x55, RDETH | DETH), /* RESYNC */
	/* UD: SEND only */
	REQUEST(0x64, DETH),
	REQUEST(0x65, DETH | IMMDT),
	/* CNP */
	REQUEST_ALONE(0x81, CNP),
	/* XRC */
	SENDS_AND_WRITES(0xa0, XRCETH),
	READS_AND_ATOMICS(0xa0, XRCETH, 0),
	INVALIDATES(0xa0, XRCETH),
};

struct nupa_opcode nupa_opcode(uint8_t code)
{
	return opcodes[code];
}
