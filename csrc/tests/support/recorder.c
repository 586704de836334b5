/* SPDX-License-Identifier: BSD-3-Clause
 * Records of an attachment, written by hand. */
#include "tests/support/recorder.h"

#include "base/atomics.h"
#include "segment/layout/geometry.h"
#include "segment/slot/slot.h"
#include "abi/verbs_abi.h"
#include "region/slot_life.h"

#include <string.h>

struct recorder recorder_open(struct nupa_fabric *fabric, uint32_t host)
{
	const uint64_t off = nupa_arena_map(&fabric->geometry).trace_off;
	struct recorder recorder = { .fabric = fabric, .host = host };
	uint64_t claim;

	CHECK_EQ(nupa_fabric_claim_slot(fabric, host, &recorder.slot), 0);
	CHECK_EQ(nupa_fabric_back(fabric, nupa_arena_offset(fabric, recorder.slot) + off,
				  sizeof(*recorder.header) + NUPA_TRACE_BYTES),
		 0);
	recorder.header = (void *)(nupa_fabric_arena(fabric, recorder.slot) + off);
	claim = nupa_slot_claim(&fabric->slots[recorder.slot]);
	recorder.header->begun = recorder.header->tail = 0;
	/* It stays ATTACHING, so no watcher waits for it to take notice. */
	nupa_store_release(&recorder.header->epoch, NUPA_CLAIM_EPOCH(claim));
	return recorder;
}

void recorder_close(struct recorder *recorder)
{
	CHECK_EQ(nupa_fabric_free_slot(recorder->fabric, recorder->slot), 0);
}

void recorder_put(struct recorder *recorder, struct nupa_trace_record record, uint64_t time_ns,
		  const void *body, size_t body_bytes, const void *data, uint32_t data_bytes)
{
	struct nupa_trace_header *header = recorder->header;
	uint8_t *ring = (uint8_t *)(header + 1);
	uint64_t tail = header->tail;
	uint32_t bytes = (uint32_t)(sizeof(record) + body_bytes + data_bytes + 7) & ~7u;
	uint32_t left = NUPA_TRACE_BYTES - (uint32_t)(tail & (NUPA_TRACE_BYTES - 1));
	uint8_t *at;

	nupa_store_release(&header->begun, tail + bytes + (left < bytes ? left : 0));
	if (left < bytes) {
		struct nupa_trace_record pad = { .bytes = left, .kind = NUPA_TRACE_PAD };

		memcpy(ring + (tail & (NUPA_TRACE_BYTES - 1)), &pad, 8);
		tail += left;
	}
	at = ring + (tail & (NUPA_TRACE_BYTES - 1));
	record.bytes = bytes;
	record.sequence = recorder->sequence++;
	record.data_bytes = data_bytes;
	record.time_ns = time_ns ? time_ns : test_now_ns();
	memcpy(at, &record, sizeof(record));
	memcpy(at + sizeof(record), body, body_bytes);
	if (data_bytes)
		memcpy(at + sizeof(record) + body_bytes, data, data_bytes);
	nupa_store_release(&header->tail, tail + bytes);
}

void recorder_message(struct recorder *from, const struct recorder *to, struct nupa_msg msg,
		      uint8_t qp_type, const void *data, uint32_t data_bytes)
{
	struct nupa_trace_message body = {
		.msg = msg,
		.data = { .total_bytes = data_bytes, .mtu_bytes = 4096, .piece_bytes = 4096 },
		.qp_type = qp_type,
		.dest_host = to->host,
	};
	struct nupa_trace_record record = {
		.kind = NUPA_TRACE_MESSAGE,
		.peer = (uint16_t)to->slot,
		.transfer = msg.op <= NUPA_OP_ATOMIC ? NUPA_TRANSFER(msg.src_qpn, msg.psn) : 0,
	};

	recorder_put(from, record, 0, &body, sizeof(body), data, data_bytes);
}
