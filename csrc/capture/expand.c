/* SPDX-License-Identifier: BSD-3-Clause
 * From a record to packets: runs are made of it, and given out packet by packet as far as the
 * buffer has room. */
#include "watch_internal.h"

struct nupa_run *nupa_run_add(struct nupa_watch *watch, uint8_t level, uint8_t kind,
			      uint64_t transfer, uint16_t flags)
{
	struct nupa_run *run = &watch->runs[watch->n_runs];

	if (watch->n_runs == NUPA_RUNS_MAX)
		return NULL;
	watch->n_runs++;
	memset(run, 0, sizeof(*run));
	run->cast.level = level;
	run->cast.kind = kind;
	run->cast.transfer = transfer;
	run->cast.flags = flags;
	run->n = 1;
	return run;
}

uint16_t nupa_flags_of(const struct nupa_trace_record *record)
{
	static const uint16_t flags[8] = {
		NUPA_FLAG_DROPPED, NUPA_FLAG_DUPLICATE, NUPA_FLAG_DELAYED, NUPA_FLAG_CORRUPT,
		NUPA_FLAG_POISON,  NUPA_FLAG_INJECTED,  NUPA_FLAG_RETRY,
	};
	uint16_t found = 0;

	for (uint32_t i = 0; i < 8; i++)
		if (record->flags >> i & 1)
			found |= flags[i];
	return found;
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
	/* A super-frame: its length, where it has one, is all of it. */
	if (frame->gso_type && total >= 34 && total - 14 < 65536 && run->whole.data_bytes >= 18 &&
	    run->whole.data[12] == 0x08 && run->whole.data[13] == 0x00)
		run->whole.ip_length = (uint16_t)(total - 14);
	if (received)
		nupa_sights_port(watch, host - 1, NUPA_INBOUND, &run->cast);
	else if (record->peer)
		nupa_sights_route(watch, host - 1, record->peer - 1u, &run->cast);
	else
		nupa_sights_flood(watch, host - 1, &run->cast);
	return true;
}

void nupa_expand_begin(struct nupa_watch *watch, const struct nupa_trace_record *record,
		       uint32_t source)
{
	bool sense = true;

	watch->n_runs = watch->run = 0;
	if (record->time_ns > watch->last_ns)
		watch->last_ns = record->time_ns;
	watch->ts_ns = watch->epoch_ns + watch->last_ns;
	switch (record->kind) {
	case NUPA_TRACE_MESSAGE:
		sense = nupa_expand_message(watch, record, source);
		break;
	case NUPA_TRACE_DIRECT:
		sense = nupa_expand_direct(watch, record, source);
		break;
	case NUPA_TRACE_FRAME:
		if (watch->levels & NUPA_TRACE_NET)
			sense = nupa_expand_frame(watch, record, source);
		break;
	default:
		break;
	}
	watch->counts.invalid += !sense;
}

/* --- giving out ---------------------------------------------------------------------- */

static uint32_t room_for(const struct nupa_run *run)
{
	if (run->how == NUPA_RUN_ROCE)
		return nupa_roce_room(&run->roce, run->next);
	return run->whole.data_bytes;
}

static uint32_t build_whole(const struct nupa_whole *whole, uint32_t snap_bytes, uint8_t *out,
			    uint32_t *original_bytes)
{
	uint32_t n = whole->data_bytes < snap_bytes ? whole->data_bytes : snap_bytes;

	*original_bytes = whole->original_bytes;
	memcpy(out, whole->data, n);
	if (whole->ip_length && n >= 18) {
		out[16] = (uint8_t)(whole->ip_length >> 8);
		out[17] = (uint8_t)whole->ip_length;
	}
	return n;
}

static void put_head(const struct nupa_watch *watch, const struct nupa_run *run, uint8_t *at,
		     uint32_t captured_bytes, uint32_t original_bytes)
{
	const struct nupa_cast *cast = &run->cast;
	const struct nupa_sight *sight = &cast->sights[run->sight];
	uint16_t flags = cast->flags;

	if (cast->transfer && !run->sequence)
		flags |= NUPA_FLAG_FIRST;
	if (cast->ends_transfer && run->next + 1 == run->n)
		flags |= NUPA_FLAG_LAST;
	memcpy(at,
	       &(struct nupa_watch_packet){
		   .ts_ns = watch->ts_ns,
		   .transfer = cast->transfer,
		   .captured_bytes = captured_bytes,
		   .original_bytes = original_bytes,
		   .sequence = run->sequence,
		   .port = sight->port,
		   .host = sight->host,
		   .flags = flags,
		   .level = cast->level,
		   .kind = cast->kind,
		   .direction = sight->direction,
	       },
	       sizeof(struct nupa_watch_packet));
}

/* One packet, at one port; false: no room. */
static bool give(const struct nupa_watch *watch, const struct nupa_run *run, struct nupa_sink *sink)
{
	const size_t head = sizeof(struct nupa_watch_packet);
	uint32_t captured, original;
	uint8_t *out = sink->at + head;

	if ((size_t)(sink->end - sink->at) < head + room_for(run) + 8)
		return false;
	if (run->how == NUPA_RUN_ROCE)
		captured = nupa_roce_build(&run->roce, run->next, run->n, watch->snap_bytes, out,
					   &original);
	else
		captured = build_whole(&run->whole, watch->snap_bytes, out, &original);
	put_head(watch, run, sink->at, captured, original);
	memset(out + captured, 0, -captured & 7);
	sink->at = out + ((captured + 7) & ~7u);
	sink->packets++;
	return true;
}

bool nupa_expand_go_on(struct nupa_watch *watch, struct nupa_sink *sink)
{
	for (; watch->run < watch->n_runs; watch->run++) {
		struct nupa_run *run = &watch->runs[watch->run];

		for (; run->next < run->n && run->cast.n_sights; run->next++) {
			if (!run->numbered)
				run->sequence =
				    nupa_transfer_next(watch, run->cast.transfer, run->cast.level);
			run->numbered = true;
			for (; run->sight < run->cast.n_sights; run->sight++)
				if (!give(watch, run, sink))
					return false;
			run->sight = 0;
			run->numbered = false;
		}
	}
	return true;
}
