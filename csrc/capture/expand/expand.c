/* SPDX-License-Identifier: BSD-3-Clause
 * Expands records into packets: makes runs of a record, and copies packet by packet as long as the
 * buffer has room. */
#include "base/bytes.h"
#include "capture/expand/expand.h"

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
		sense = nupa_expand_frame(watch, record, source);
		break;
	case NUPA_TRACE_PACKET:
		sense = nupa_expand_packet(watch, record, source);
		break;
	case NUPA_TRACE_WQE:
		sense = nupa_expand_wqe(watch, record, source);
		break;
	case NUPA_TRACE_DOORBELL:
		sense = nupa_expand_doorbell(watch, record, source);
		break;
	case NUPA_TRACE_CQE:
		sense = nupa_expand_cqe(watch, record, source);
		break;
	default:
		break;
	}
	watch->counts.invalid += !sense;
}

/* --- giving out ---------------------------------------------------------------------- */

#define NUPA_HEADER_BYTES 24u

static uint32_t room_for(const struct nupa_run *run)
{
	switch (run->how) {
	case NUPA_RUN_ROCE:
		return nupa_roce_room(&run->roce, run->next);
	case NUPA_RUN_TLP:
		return NUPA_HEADER_BYTES + NUPA_SPLIT_MAX_BYTES;
	case NUPA_RUN_CACHE:
		return NUPA_HEADER_BYTES + NUPA_CACHE_MAX_BYTES;
	default:
		return NUPA_HEADER_BYTES + run->whole.head_bytes + run->whole.data_bytes;
	}
}

static uint32_t build_whole(const struct nupa_whole *whole, uint8_t *out, uint32_t *original_bytes)
{
	*original_bytes = whole->original_bytes;
	memcpy(out, whole->head, whole->head_bytes);
	memcpy(out + whole->head_bytes, whole->data, whole->data_bytes);
	if (whole->ip_length) {
		out[16] = (uint8_t)(whole->ip_length >> 8);
		out[17] = (uint8_t)whole->ip_length;
	}
	return whole->head_bytes + whole->data_bytes;
}

/* The header of NUPA's link type: nupa/packet/tables/record.py. */
static void put_nupa_header(const struct nupa_watch_packet *packet, uint8_t *at)
{
	const uint8_t first[] = {
		1, NUPA_HEADER_BYTES, packet->level, packet->kind, packet->direction, 0
	};

	memcpy(at, first, sizeof(first));
	nupa_put64(nupa_put16(at + 6, packet->flags), packet->transfer);
	nupa_put32(nupa_put16(nupa_put16(at + 16, packet->port), packet->host), packet->sequence);
}

static struct nupa_watch_packet head_of(const struct nupa_watch *watch, const struct nupa_run *run)
{
	const struct nupa_cast *cast = &run->cast;
	const struct nupa_sight *sight = &cast->sights[run->sight];
	struct nupa_watch_packet packet = {
		.ts_ns = watch->ts_ns,
		.transfer = cast->transfer,
		.sequence = run->sequence,
		.port = sight->port,
		.host = sight->host,
		.flags = cast->flags,
		.level = cast->level,
		.kind = cast->kind,
		.direction = sight->direction,
	};
	bool last = run->next + 1 == run->n;

	if (run->how == NUPA_RUN_TLP) {
		last = nupa_tlp_is_last(&run->tlp);
		if (run->tlp.split.completes) /* the other way */
			packet.direction ^= NUPA_INBOUND ^ NUPA_OUTBOUND;
	} else if (run->how == NUPA_RUN_CACHE) {
		last = nupa_cache_is_last(&run->cache);
		if (!nupa_cache_is_outbound(&run->cache))
			packet.direction = NUPA_INBOUND;
	}
	if (cast->transfer && !run->sequence)
		packet.flags |= NUPA_FLAG_FIRST;
	if (cast->ends_transfer && last)
		packet.flags |= NUPA_FLAG_LAST;
	return packet;
}

/* One packet, at one port; false: no room. */
static bool give(const struct nupa_watch *watch, const struct nupa_run *run, struct nupa_sink *sink)
{
	struct nupa_watch_packet head;
	uint32_t captured, original, front = 0;
	uint8_t *out = sink->at + sizeof(head);

	if ((size_t)(sink->end - sink->at) < sizeof(head) + room_for(run) + 8)
		return false;
	head = head_of(watch, run);
	switch (run->how) {
	case NUPA_RUN_ROCE:
		captured = nupa_roce_build(&run->roce, run->next, run->n, watch->snap_bytes, out,
					   &original);
		break;
	case NUPA_RUN_TLP:
		front = NUPA_HEADER_BYTES;
		captured = nupa_tlp_build(&run->tlp, out + front, &original);
		break;
	case NUPA_RUN_CACHE:
		front = NUPA_HEADER_BYTES;
		captured = nupa_cache_build(&run->cache, out + front, &original);
		break;
	default:
		front = run->how == NUPA_RUN_ENTRY ? NUPA_HEADER_BYTES : 0;
		captured = build_whole(&run->whole, out + front, &original);
		break;
	}
	if (front)
		put_nupa_header(&head, out);
	captured += front;
	head.captured_bytes = captured < watch->snap_bytes ? captured : watch->snap_bytes;
	head.original_bytes = original + front;
	memcpy(sink->at, &head, sizeof(head));
	memset(out + head.captured_bytes, 0, -head.captured_bytes & 7);
	sink->at = out + ((head.captured_bytes + 7) & ~7u);
	sink->packets++;
	return true;
}

/* Messages of CXL.cache pass one of two ports each. */
static bool is_seen_at(const struct nupa_run *run, uint32_t sight)
{
	return run->how != NUPA_RUN_CACHE ||
	       run->cast.sights[sight].host == nupa_cache_host(&run->cache);
}

static bool is_seen(const struct nupa_run *run)
{
	for (uint32_t i = 0; i < run->cast.n_sights; i++)
		if (is_seen_at(run, i))
			return true;
	return false;
}

static bool go_to_seen(struct nupa_run *run)
{
	while (nupa_cache_next(&run->cache))
		if (is_seen(run))
			return true;
	return false;
}

/* Whether there is a packet to copy; it is the current one then. */
static bool begin(struct nupa_watch *watch, struct nupa_run *run)
{
	if (!run->cast.n_sights || !run->n)
		return false;
	if (run->how != NUPA_RUN_TLP && run->how != NUPA_RUN_CACHE)
		return run->next < run->n;
	if (run->begun)
		return run->n != run->next;
	run->begun = true;
	run->n = UINT32_MAX;
	if (run->how == NUPA_RUN_CACHE)
		return is_seen(run) || go_to_seen(run);
	return nupa_tlp_begin(watch, &run->tlp);
}

static bool next(struct nupa_watch *watch, struct nupa_run *run)
{
	run->next++;
	switch (run->how) {
	case NUPA_RUN_TLP:
		return nupa_tlp_next(watch, &run->tlp);
	case NUPA_RUN_CACHE:
		return go_to_seen(run);
	default:
		return run->next < run->n;
	}
}

bool nupa_expand_go_on(struct nupa_watch *watch, struct nupa_sink *sink)
{
	for (; watch->run < watch->n_runs; watch->run++) {
		struct nupa_run *run = &watch->runs[watch->run];
		bool more = begin(watch, run);

		while (more) {
			if (!run->numbered)
				run->sequence =
				    nupa_transfer_next(watch, run->cast.transfer, run->cast.level);
			run->numbered = true;
			for (; run->sight < run->cast.n_sights; run->sight++)
				if (is_seen_at(run, run->sight) && !give(watch, run, sink))
					return false;
			run->sight = 0;
			run->numbered = false;
			more = next(watch, run);
		}
	}
	return true;
}
