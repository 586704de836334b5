/* SPDX-License-Identifier: BSD-3-Clause
 * Forged packets of RoCE v2, from the BTH to the place of the ICRC: made ones and those of Linux's
 * rdma_rxe, either of them for a live queue pair and damaged. */
#ifndef NUPA_TESTS_WIRE_FORGE_H
#define NUPA_TESTS_WIRE_FORGE_H

#include "engine/core/nupa.h"

#define FORGE_BYTES 5200u /* the longest */

/* The queue pair that packets are for, and the region that they may write. */
struct forge {
	uint64_t *random;
	enum ibv_qp_type type;
	uint32_t qpn, qkey, rkey;
	uint32_t expected_psn, next_psn; /* of the other end's requests; of its own */
	uint64_t memory;
	uint32_t bytes; /* of the region */
};

/* Of packets that may follow each other in one datagram: none is longer than the first. */
struct forge_shape {
	int32_t real; /* the first, of rdma_rxe; -1: they are made, and what follows counts */
	uint8_t opcode, pad_bytes;
	uint32_t payload_bytes;
};

/* The packets of rdma_rxe in a capture, behind those of the captures before. */
void forge_load(const char *path);
struct forge_shape forge_shape(const struct forge *forge);
/* The *nth* of several; returns its length. */
uint32_t forge_packet(const struct forge *forge, const struct forge_shape *shape, uint32_t nth,
		      uint8_t packet[FORGE_BYTES]);
/* A number below this one. */
uint32_t forge_pick(uint64_t *random, uint32_t below);

#endif
