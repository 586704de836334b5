/* SPDX-License-Identifier: BSD-3-Clause
 * Batches of flits.h. */
#include "tests/support/flits.h"

#include <stdlib.h>
#include <string.h>

_Alignas(64) uint8_t flits_memory[2][DEVICE_BYTES];
static const uint8_t ld_ids[] = { 0, LD };
static const uint16_t hops[] = { ROOT, UPSTREAM, 2, ROOT, UPSTREAM, 3 };
/* 256 bytes in turn. */
static const struct nupa_cxl_node nodes[] = {
	{ .kind = NUPA_CXL_STEP, .shift = 8, .bits = 1, .next = 1 },
	{ .kind = NUPA_CXL_DEVICE,
	  .shift = 8,
	  .bits = 1,
	  .hpa_base = BASE,
	  .next = 0,
	  .n_hops = 3 },
	{ .kind = NUPA_CXL_DEVICE,
	  .shift = 8,
	  .bits = 1,
	  .hpa_base = BASE,
	  .next = 3,
	  .n_hops = 3,
	  .device = 1 },
};
static const struct nupa_cxl_range ranges[] = { { BASE, BASE + REGION_BYTES - 1, 0, 0 } };
const struct nupa_cxl_table flits_table = { ranges, nodes, hops, 1, 3, 6 };

struct nupa_cxl_bus *bus_make(void)
{
	struct nupa_cxl_bus *bus = nupa_cxl_bus_new(2, 4);

	CHECK(bus);
	CHECK_EQ(nupa_cxl_bus_set_table(bus, &flits_table), 0);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(nupa_cxl_bus_set_device(bus, i, flits_memory[i], DEVICE_BYTES), 0);
	return bus;
}

static void damage(struct batch *batch, int stage)
{
	if (batch->damaged == stage)
		batch->flits[stage][20] ^= 1;
}

int64_t go(struct batch *batch)
{
	struct nupa_flit_run *run = &batch->run;

	batch->n[0] = nupa_flit_send(run, batch->requests, batch->flits[0], batch->counts[0]);
	CHECK(batch->n[0] >= 0);
	damage(batch, 0);
	batch->n[1] = nupa_flit_forward(run, 1, batch->flits[0], (uint64_t)batch->n[0],
					batch->counts[0], batch->flits[1], batch->counts[1]);
	CHECK(batch->n[1] >= 0);
	damage(batch, 1);
	CHECK(nupa_flit_serve(run, batch->flits[1], (uint64_t)batch->n[1], batch->counts[1],
			      batch->received, batch->device) >= 0);
	batch->n[2] = nupa_flit_answer(run, batch->device, batch->flits[2], batch->counts[2]);
	CHECK(batch->n[2] >= 0);
	damage(batch, 2);
	batch->n[3] = nupa_flit_return(run, 1, batch->flits[2], (uint64_t)batch->n[2],
				       batch->counts[2], batch->flits[3], batch->counts[3]);
	CHECK(batch->n[3] >= 0);
	damage(batch, 3);
	return nupa_flit_finish(run, batch->flits[3], (uint64_t)batch->n[3], batch->counts[3],
				batch->answers);
}

struct batch *batch_make(struct nupa_cxl_bus *bus, uint32_t format)
{
	struct batch *batch = calloc(1, sizeof(*batch));

	CHECK(batch);
	batch->run.bus = bus;
	batch->run.ld_ids = ld_ids;
	batch->run.ways = batch->ways;
	batch->run.format = format;
	batch->damaged = -1;
	return batch;
}

struct nupa_cxl_message *ask(struct batch *batch, uint8_t channel, uint64_t hpa)
{
	struct nupa_cxl_message *request = &batch->requests[batch->run.n];

	memset(request, 0, sizeof(*request));
	request->channel = channel;
	request->opcode = 1; /* MemRd, MemWr */
	request->address = hpa;
	request->tag = (uint16_t)(1000 + batch->run.n++);
	return request;
}

void check_answer(const struct batch *batch, uint32_t i, uint32_t channel, uint32_t status,
		  uint32_t opcode, uint32_t poison)
{
	CHECK_EQ(batch->answers[i].channel, channel);
	CHECK_EQ(batch->answers[i].tag, 1000 + i);
	CHECK_EQ(batch->answers[i].opcode, opcode);
	CHECK_EQ(batch->answers[i].poison, poison);
	CHECK_EQ(batch->answers[i].ld_id, 0);
	CHECK_EQ(batch->ways[i].status, status);
	CHECK_EQ(batch->ways[i].fault, NUPA_FLIT_FINE);
	for (uint32_t k = 0; k < 64 && channel == NUPA_CXL_S2M_DRS && status; k++)
		CHECK_EQ(batch->answers[i].data[k], 0xFF);
}
