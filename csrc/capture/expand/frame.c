/* SPDX-License-Identifier: BSD-3-Clause
 * Frames of the netdev. */
#include "packet/crc.h"
#include "capture/expand/expand.h"

/* The netdev sends a multicast frame to one host after the other; the source's port has seen the
 * first of these copies only. */
static bool is_copy(struct nupa_watch *watch, const struct nupa_whole *frame, uint32_t source,
		    uint32_t peer)
{
	struct nupa_flood *flood = &watch->flood;
	uint64_t *word = &flood->hosts[peer / 64], bit = UINT64_C(1) << peer % 64;
	uint32_t crc;
	bool copy;

	if (!frame->data_bytes || !(frame->data[0] & 1)) /* to one address */
		return false;
	crc = nupa_crc32(frame->original_bytes, frame->data, frame->data_bytes);
	copy = flood->source == source && flood->crc == crc && !(*word & bit);
	if (!copy)
		*flood = (struct nupa_flood){ .source = source, .crc = crc };
	*word |= bit;
	return copy;
}

bool nupa_expand_frame(struct nupa_watch *watch, const struct nupa_trace_record *record,
		       uint32_t source)
{
	const struct nupa_trace_frame *frame = (const void *)(record + 1);
	const bool received = record->flags & NUPA_TRACE_BY_RECEIVER;
	const uint32_t total = frame->data.total_bytes, host = watch->slot_host[source];
	const uint32_t n_hosts = watch->fabric->geometry.n_hosts;
	struct nupa_run *run;

	if (!host || !total || total > 65536 + 18 || record->peer > n_hosts)
		return false;
	run = nupa_run_add(watch, NUPA_LEVEL_NET, NUPA_KIND_ETHERNET, record->transfer,
			   nupa_flags_of(record));
	run->how = NUPA_RUN_WHOLE;
	run->whole = (struct nupa_whole){
		.data = (const uint8_t *)(frame + 1),
		.data_bytes = record->data_bytes < total ? record->data_bytes : total,
		.original_bytes = total,
	};
	/* A super-frame: its length, where it has one, covers all of it. */
	if (frame->gso_type && total >= 34 && total - 14 < 65536 && run->whole.data_bytes >= 18 &&
	    run->whole.data[12] == 0x08 && run->whole.data[13] == 0x00)
		run->whole.ip_length = (uint16_t)(total - 14);
	if (received)
		nupa_sights_port(watch, host - 1, NUPA_INBOUND, &run->cast);
	else if (record->peer)
		nupa_sights_route(watch, host - 1, record->peer - 1u, &run->cast);
	else
		nupa_sights_flood(watch, host - 1, &run->cast);
	if (!received && record->peer && is_copy(watch, &run->whole, source, record->peer))
		nupa_sights_drop_outbound(&run->cast);
	return true;
}
