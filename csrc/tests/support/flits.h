/* SPDX-License-Identifier: BSD-3-Clause
 * Batches of requests as flits, through a root port, a switch and two interleaved devices, of which
 * one is a logical device. */
#ifndef NUPA_TESTS_FLITS_H
#define NUPA_TESTS_FLITS_H

#include "cxl/flit_way.h"
#include "tests/support/runner.h"

#define BASE (UINT64_C(1) << 32)
#define DEVICE_BYTES 4096u
#define REGION_BYTES (2 * DEVICE_BYTES)
#define MOST 64u
#define ROOT 0
#define UPSTREAM 1 /* and downstream ports 2 and 3 */
#define LD 5       /* of device 1 */

extern uint8_t flits_memory[2][DEVICE_BYTES];
extern const struct nupa_cxl_table flits_table;

/* A batch, and the flits of each link: down 0, down 1, up 1, up 0. */
struct batch {
	struct nupa_flit_run run;
	struct nupa_flit_way ways[MOST];
	struct nupa_cxl_message requests[MOST], received[MOST], device[MOST], answers[MOST];
	uint8_t flits[4][MOST * NUPA_FLIT_MESSAGE_BYTES], counts[4][MOST];
	int64_t n[4];
	int damaged; /* of which of the four links the first flit is; -1: none */
};

struct nupa_cxl_bus *bus_make(void);
struct batch *batch_make(struct nupa_cxl_bus *bus, uint32_t format);
/* One more request: MemRd or MemWr. */
struct nupa_cxl_message *ask(struct batch *batch, uint8_t channel, uint64_t hpa);
/* All stages: how many answers there are. */
int64_t go(struct batch *batch);
void check_answer(const struct batch *batch, uint32_t i, uint32_t channel, uint32_t status,
		  uint32_t opcode, uint32_t poison);

#endif
