/* SPDX-License-Identifier: BSD-3-Clause
 * Runs of packets: added to a watch, and filled in. */
#include "capture/expand/expand.h"

#include "abi/verbs_abi.h"

struct nupa_run *nupa_run_add(struct nupa_watch *watch, uint8_t level, uint8_t kind,
			      uint64_t transfer, uint16_t flags)
{
	const bool is_watched = watch->levels >> (level - 1) & 1;
	/* No record has as many as there is room for. */
	struct nupa_run *run = is_watched && watch->n_runs < NUPA_RUNS_MAX
				   ? &watch->runs[watch->n_runs++]
				   : &watch->nowhere;

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

uint8_t nupa_transport_of(uint8_t qp_type, bool is_xrc)
{
	if (is_xrc)
		return NUPA_TRANSPORT_XRC;
	switch (qp_type) {
	case IBV_QPT_UC:
		return NUPA_TRANSPORT_UC;
	case IBV_QPT_UD:
		return NUPA_TRANSPORT_UD;
	default:
		return NUPA_TRANSPORT_RC;
	}
}

bool nupa_data_makes_sense(const struct nupa_trace_data *data)
{
	return data->mtu_bytes >= 128 && data->mtu_bytes <= NUPA_MTU_BYTES &&
	       data->piece_bytes <= data->mtu_bytes;
}

struct nupa_run *nupa_roce_add(struct nupa_watch *watch, enum nupa_roce_what what,
			       uint64_t transfer, uint16_t flags)
{
	struct nupa_run *run =
	    nupa_run_add(watch, NUPA_LEVEL_TRANSPORT, NUPA_KIND_ETHERNET, transfer, flags);

	run->how = NUPA_RUN_ROCE;
	run->roce.what = (uint8_t)what;
	run->roce.begins = run->roce.ends = true;
	run->roce.mtu_bytes = NUPA_MTU_BYTES;
	return run;
}

void nupa_roce_join(struct nupa_watch *watch, struct nupa_run *run, uint32_t from, uint32_t to,
		    bool received)
{
	nupa_roce_head(watch, &run->roce, from, to);
	if (received)
		nupa_sights_port(watch, to, NUPA_INBOUND, &run->cast);
	else
		nupa_sights_route(watch, from, to, &run->cast);
}

void nupa_roce_set_data(struct nupa_roce *roce, const struct nupa_trace_data *data,
			const struct nupa_trace_record *record, const void *from)
{
	roce->bytes = data->total_bytes;
	roce->mtu_bytes = data->mtu_bytes;
	roce->piece_bytes = data->piece_bytes;
	roce->data = from;
	roce->data_bytes = record->data_bytes;
}
