/* SPDX-License-Identifier: BSD-3-Clause
 * Hostile writes into arenas: messages, rings and tables. */
#include "tests/segment/scribble.h"
#include "engine/cm/wire/message.h"
#include "segment/control/pkey.h"
#include "segment/layout/geometry.h"
#include "segment/layout/qpn.h"
#include "segment/ring/ring.h"
#include "tests/support/runner.h"

#include <string.h>

#define TABLE_ENTRIES 256u /* as many as are backed */
#define TABLE_ENTRY_BYTES sizeof(struct nupa_mr_entry)
#define LOOKS 64
#define SCRIBBLE_PORT 7174u /* rping's */

uint32_t scribble_pick(uint64_t *random, uint32_t n)
{
	return (uint32_t)(test_random(random) >> 20) % n;
}

void scribble(uint8_t *at, uint64_t bytes, uint64_t *random)
{
	uint64_t offset = test_random(random) % bytes;
	uint64_t value = test_random(random);
	uint32_t n = 1u << (test_random(random) % 4);

	if (offset > bytes - 8)
		offset = bytes - 8;
	/* Small numbers, flipped bits and all ones find more than noise does. */
	switch (test_random(random) % 4) {
	case 0:
		value %= 256;
		break;
	case 1:
		memcpy(&value, at + offset, 8);
		value ^= UINT64_C(1) << (test_random(random) % 64);
		break;
	case 2:
		value = UINT64_MAX;
		break;
	default:
		break;
	}
	memcpy(at + offset, &value, n);
}

/* --- what there is ------------------------------------------------------------------------- */

uint32_t scribble_slot(const struct nupa_fabric *fabric, uint64_t *random)
{
	uint32_t slot = 1;

	for (int looks = 0; looks < LOOKS; looks++) {
		slot = 1 + scribble_pick(random, fabric->geometry.n_slots - 1);
		if (NUPA_CLAIM_STATE(nupa_load_relaxed(&fabric->slots[slot].claim)))
			break;
	}
	return slot;
}

/* An entry of a table in whose first word is something, if one is easily found. */
static uint8_t *entry_in_use(uint8_t *table, uint64_t *random)
{
	uint8_t *entry = table;

	for (int looks = 0; looks < LOOKS; looks++) {
		entry = table + test_random(random) % TABLE_ENTRIES * TABLE_ENTRY_BYTES;
		if (nupa_load_relaxed((uint32_t *)(void *)entry))
			break;
	}
	return entry;
}

static const struct nupa_mr_entry *some_region(struct nupa_fabric *fabric, uint32_t slot,
					       uint64_t *random)
{
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);

	return (struct nupa_mr_entry *)(void *)entry_in_use(
	    nupa_fabric_arena(fabric, slot) + map.mrs_off, random);
}

static const struct nupa_qp_entry *some_qp(struct nupa_fabric *fabric, uint32_t slot,
					   uint64_t *random)
{
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);

	return (struct nupa_qp_entry *)(void *)entry_in_use(
	    nupa_fabric_arena(fabric, slot) + map.qps_off, random);
}

static struct nupa_ring_header *ring_of(struct nupa_fabric *fabric, uint32_t from, uint32_t to)
{
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);

	return (struct nupa_ring_header *)(void *)(nupa_fabric_arena(fabric, from) + map.rings_off +
						   to * map.ring_stride);
}

/* --- messages ------------------------------------------------------------------------------- */

/* To a QP that there is, from the one that it is connected to, with a key that there is. */
static void address(struct nupa_fabric *fabric, uint32_t to, struct nupa_msg *msg, uint64_t *random)
{
	const struct nupa_qp_entry *qp = some_qp(fabric, to, random);
	const struct nupa_mr_entry *region = some_region(fabric, to, random);

	msg->dest_qpn = nupa_load_relaxed(&qp->qpn);
	msg->src_qpn = nupa_load_relaxed(&qp->dest_qpn);
	if (msg->op == NUPA_OP_WRITE || msg->op == NUPA_OP_READ || msg->op == NUPA_OP_ATOMIC) {
		msg->reth.rkey = nupa_load_relaxed(&region->key);
		msg->reth.raddr =
		    nupa_load_relaxed(&region->iova) +
		    (scribble_pick(random, 2) ? nupa_load_relaxed(&region->length) : 0) -
		    scribble_pick(random, 64);
	}
	if (msg->flags & NUPA_F_INV)
		msg->imm = nupa_load_relaxed(&region->key);
}

/* What no receiver takes for nonsense (drain.c). */
static void be_polite(const struct nupa_fabric *fabric, struct nupa_msg *msg)
{
	if (msg->op == 0 || msg->op > NUPA_OP_ATOMIC_RESP)
		msg->op = NUPA_OP_SEND;
	if (msg->flags & NUPA_F_DMA)
		msg->length_bytes = 1 + msg->length_bytes % (fabric->geometry.dma_bytes / 4);
}

void scribble_message(struct nupa_fabric *fabric, uint32_t from, uint32_t to, bool polite,
		      uint64_t *random)
{
	struct nupa_ring_header *header = ring_of(fabric, from, to);
	uint32_t n_lines = fabric->geometry.ring_lines;
	struct nupa_msg *lines = (struct nupa_msg *)(header + 1);
	uint64_t count = nupa_load_relaxed(&header->head) & NUPA_COUNT_MASK;
	uint64_t index = count + test_random(random) % 4;
	struct nupa_msg msg, *line = &lines[index & (n_lines - 1)];
	uint64_t words[8] = { 0 };

	for (int i = 0; i < 8; i++)
		words[i] = test_random(random) % 3 ? test_random(random) : words[0] % 64;
	memcpy(&msg, line, sizeof(msg)); /* messages sent there once are plausible */
	for (int i = 0; i < 8; i++)
		if (test_random(random) % 3 == 0)
			memcpy((uint8_t *)&msg + i * 8, &words[i], 8);
	msg.op = (uint8_t)(test_random(random) % (NUPA_OP_MAX + 1));
	if (test_random(random) % 2) {
		msg.dest_qpn = to << NUPA_QP_INDEX_BITS | (uint32_t)(test_random(random) % 64);
		msg.src_qpn = from << NUPA_QP_INDEX_BITS | (uint32_t)(test_random(random) % 64);
	}
	if (test_random(random) % 2)
		msg.length_bytes = (uint32_t)(test_random(random) % 70000);
	if (scribble_pick(random, 2))
		address(fabric, to, &msg, random);
	if (scribble_pick(random, 4) == 0) /* the next of a stream */
		msg.psn += scribble_pick(random, 4);
	if (polite)
		be_polite(fabric, &msg);
	msg.tag = (uint32_t)(index / n_lines) + 1;
	memcpy((uint8_t *)line + 4, (uint8_t *)&msg + 4, sizeof(msg) - 4);
	nupa_store_release(&line->tag, msg.tag);
}

void scribble_polite_message(struct nupa_fabric *fabric, uint64_t *random)
{
	const uint32_t from = scribble_slot(fabric, random);

	scribble_message(fabric, from,
			 scribble_pick(random, 2) ? from : scribble_slot(fabric, random), true,
			 random);
}

void scribble_message_of_any(struct nupa_fabric *fabric, uint64_t *random)
{
	scribble_message(fabric, scribble_slot(fabric, random), scribble_slot(fabric, random),
			 false, random);
}

/* --- datagrams ------------------------------------------------------------------------------ */

/* A message of connection management for the listener that a guest has, mostly. */
static void make_mad(uint8_t bytes[NUPA_CM_MAD_BYTES], uint64_t *random)
{
	struct nupa_cm_mad mad;
	uint8_t *at = (uint8_t *)&mad;

	for (size_t i = 0; i < sizeof(mad); i++)
		at[i] = (uint8_t)(scribble_pick(random, 3) ? scribble_pick(random, 256) : 0);
	mad.attribute = (uint16_t)(NUPA_CM_REQ + scribble_pick(random, 9));
	mad.local_id = scribble_pick(random, 64);
	mad.remote_id = scribble_pick(random, 64);
	mad.ip_version = 4;
	mad.service = UINT64_C(1) << 24 | RDMA_PS_TCP << 16 | SCRIBBLE_PORT;
	mad.transport = NUPA_CM_RC;
	nupa_cm_mad_write(&mad, bytes);
	for (uint32_t flips = scribble_pick(random, 2) * 3; flips; flips--)
		scribble(bytes, NUPA_CM_MAD_BYTES, random);
}

/* Beside the next line that the consumer looks at. */
static void put_datagram(const struct nupa_rx *rx, struct nupa_msg *msg, uint64_t *random)
{
	struct nupa_msg *line = (struct nupa_msg *)nupa_rx_line(rx);
	uint8_t mad[NUPA_CM_MAD_BYTES];
	uint64_t start;

	make_mad(mad, random);
	(void)nupa_dma_span(rx->dma_head, rx->dma_bytes, sizeof(mad), &start);
	memcpy((uint8_t *)rx->dma + start, mad, sizeof(mad));
	msg->tag = (uint32_t)(rx->head >> rx->lap_shift) + 1;
	memcpy((uint8_t *)line + 4, (uint8_t *)msg + 4, sizeof(*msg) - 4);
	nupa_store_release(&line->tag, msg->tag);
}

/* To QP 1 of a kernel, as a process or a kernel sends it, or to any QP of its. */
void scribble_datagram(struct nupa_fabric *fabric, uint64_t *random)
{
	const uint32_t from = scribble_slot(fabric, random), to = scribble_slot(fabric, random);
	const struct nupa_qp_entry *qp = some_qp(fabric, to, random);
	const bool as_process = scribble_pick(random, 2);
	struct nupa_msg msg = { .op = as_process ? NUPA_OP_CM : NUPA_OP_SEND,
				.flags = NUPA_F_FIRST | NUPA_F_LAST | NUPA_F_DMA,
				.syndrome = as_process ? CM_MAD : 0,
				.timer = (uint8_t)scribble_pick(random, 3),
				.src_qpn = from << NUPA_QP_INDEX_BITS,
				.length_bytes = NUPA_CM_MAD_BYTES };
	struct nupa_ring_header *header = ring_of(fabric, from, to);
	struct nupa_rx rx;

	nupa_rx_init(&rx, header, fabric->geometry.ring_lines, fabric->geometry.dma_bytes, 0);
	rx.head = nupa_load_relaxed(&header->head) & NUPA_COUNT_MASK;
	rx.dma_head = nupa_load_relaxed(&header->dma_head) & NUPA_COUNT_MASK;
	msg.dest_qpn = scribble_pick(random, 4) ? nupa_load_relaxed(&fabric->slots[to].gsi_qpn)
						: nupa_load_relaxed(&qp->qpn);
	if (!as_process)
		msg.deth = (struct nupa_deth){ .qkey = scribble_pick(random, 4)
							   ? NUPA_CM_GSI_QKEY
							   : nupa_load_relaxed(&qp->qkey),
					       .sgid_index = (uint8_t)scribble_pick(random, 9),
					       .is_global = (uint8_t)scribble_pick(random, 3),
					       .pkey = NUPA_PKEY_DEFAULT };
	put_datagram(&rx, &msg, random);
}

/* --- arenas --------------------------------------------------------------------------------- */

void scribble_in_arena(struct nupa_fabric *fabric, uint32_t slot, uint64_t *random)
{
	struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	uint8_t *arena = nupa_fabric_arena(fabric, slot);
	uint32_t to = 1 + (uint32_t)(test_random(random) % (fabric->geometry.n_slots - 1));
	uint8_t *ring = arena + map.rings_off + to * map.ring_stride;

	switch (test_random(random) % 8) {
	case 0:
		scribble(arena, map.qps_off, random);
		break;
	case 1:
		scribble(entry_in_use(arena + map.qps_off, random), TABLE_ENTRY_BYTES, random);
		break;
	case 2:
		scribble(entry_in_use(arena + map.mrs_off, random), TABLE_ENTRY_BYTES, random);
		break;
	case 3:
		scribble(ring, sizeof(struct nupa_ring_header), random);
		break;
	case 4:
		scribble(ring + sizeof(struct nupa_ring_header),
			 map.ring_stride - sizeof(struct nupa_ring_header), random);
		break;
	default:
		scribble_message(fabric, slot, to, false, random);
		break;
	}
}

void scribble_ring(struct nupa_fabric *fabric, uint64_t *random)
{
	struct nupa_ring_header *header =
	    ring_of(fabric, scribble_slot(fabric, random), scribble_slot(fabric, random));

	if (scribble_pick(random, 4))
		scribble((uint8_t *)header, sizeof(*header), random);
	else
		scribble((uint8_t *)(header + 1), UINT64_C(64) * fabric->geometry.ring_lines,
			 random);
}

void scribble_tables(struct nupa_fabric *fabric, uint64_t *random)
{
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	uint8_t *arena = nupa_fabric_arena(fabric, scribble_slot(fabric, random));

	scribble(
	    entry_in_use(arena + (scribble_pick(random, 2) ? map.qps_off : map.mrs_off), random),
	    TABLE_ENTRY_BYTES, random);
}

/* Counters, resources, records and all that lies between them. */
void scribble_counts(struct nupa_fabric *fabric, uint64_t *random)
{
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	uint8_t *arena = nupa_fabric_arena(fabric, scribble_slot(fabric, random));

	switch (scribble_pick(random, 4)) {
	case 0:
		scribble(arena, map.qps_off, random);
		break;
	case 1:
		scribble(arena + map.trace_off, sizeof(struct nupa_trace_header), random);
		break;
	default:
		scribble(arena + map.mcast_off, map.trace_off - map.mcast_off, random);
		break;
	}
}
