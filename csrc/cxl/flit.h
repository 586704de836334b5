/* SPDX-License-Identifier: BSD-3-Clause
 * CXL.mem messages as flits: packed with their slots and CRC, and unpacked with all that is
 * checked. CXL 3.1 3.3 (messages), 4.2 (68B flits), 4.3 and 6.2.3.1.2 (latency-optimised 256B
 * flits).
 *
 * A message has flits of its own: what else a flit has room for stays empty.  Credits, retry and
 * FEC are not modelled: their fields are 0; nor is the traffic class of PBR messages, for which
 * slot 0 has no room. */
#ifndef NUPA_CXL_FLIT_H
#define NUPA_CXL_FLIT_H

#include <stdbool.h>
#include <stdint.h>

/* cffi: begin */
enum nupa_flit_format {
	NUPA_FLIT_68,  /* with its 2 bytes of protocol ID */
	NUPA_FLIT_256, /* latency-optimised: two halves, each with its CRC */
	NUPA_FLIT_PBR, /* standard 256B flits, of messages that are routed by PIDs (4.3.2) */
};

/* CXL 3.1 3.3.2, the numbers of nupa.cxl.link.mem_tables. */
enum nupa_cxl_channel {
	NUPA_CXL_M2S_REQ = 1,
	NUPA_CXL_M2S_RWD = 2,
	NUPA_CXL_S2M_NDR = 5,
	NUPA_CXL_S2M_DRS = 6,
};

/* A message of one of these channels; what the channel does not have is 0. */
struct nupa_cxl_message {
	uint64_t address;      /* M2S: of a line */
	uint8_t data[64];      /* RwD, DRS */
	uint64_t byte_enables; /* MemWrPtl: bit n is byte n's */
	uint16_t tag;
	uint8_t channel, opcode, snp_type, meta_field, meta_value, tc, ld_id, poison, dev_load;
	uint8_t pad;
	uint16_t spid, dpid; /* PBR: answers have no spid */
};

/* Why flits are refused. */
enum nupa_flit_fault {
	NUPA_FLIT_FINE,
	NUPA_FLIT_SHORT,       /* of the message's flits some are not there */
	NUPA_FLIT_PROTOCOL_ID, /* no CXL.cachemem flit: 6.2.2.8, or a flit type of 6.2.3.1.1.1 */
	NUPA_FLIT_CRC,
	NUPA_FLIT_HEADER,  /* a control flit, or lengths that its message does not have */
	NUPA_FLIT_SLOT,    /* formats that a flit of this direction and model does not have */
	NUPA_FLIT_MESSAGE, /* no valid bit, or an opcode that is none */
	NUPA_FLIT_LD,      /* of another logical device */
	NUPA_FLIT_TAG,     /* an answer to something else */
};

/* At most two of 68 bytes. */
#define NUPA_FLIT_MESSAGE_BYTES 256

/* How many bytes a flit has. */
uint32_t nupa_flit_bytes(uint32_t format);

/* Packs a message: returns how many flits it took in `flits`, which has room for
 * NUPA_FLIT_MESSAGE_BYTES; -EINVAL: no such format, or a field that does not fit. */
int nupa_flit_pack(uint32_t format, const struct nupa_cxl_message *message, uint8_t *flits);

/* Unpacks the message of n flits, which go up (S2M) or down: enum nupa_flit_fault.  A protocol ID
 * of which one half is wrong is corrected by the other (6.2.2.8), and counted. */
int nupa_flit_unpack(uint32_t format, bool up, const uint8_t *flits, uint32_t n,
		     struct nupa_cxl_message *message, uint32_t *corrected);
/* cffi: end */

#endif
