/* SPDX-License-Identifier: BSD-3-Clause
 * Lanes: who gets one, and the counts of what moved in them. */
#include "engine/core/lane.h"
#include "engine/core/wake.h"

#include <stdlib.h>

_Static_assert(NUPA_LANES_MAX == NUPA_SHARERS_MAX, "a line in the slot for each sharer");

/* This thread's; NULL: there are too many, or no memory. */
static struct nupa_lane *own_lane(struct nupa_engine *engine)
{
	const int place = nupa_lock_join(&engine->lock);
	struct nupa_lane *lane;

	if (place < 0)
		return NULL;
	lane = engine->lanes[place];
	if (!lane) {
		lane = aligned_alloc(NUPA_CACHE_LINE_BYTES, sizeof(*lane));
		if (!lane)
			return NULL;
		*lane = (struct nupa_lane){ .hazard = &engine->slot->lanes[place].hazard };
		engine->lanes[place] = lane;
	}
	nupa_store_relaxed(&lane->thread, nupa_thread_self);
	if (engine->slot->n_lanes <= (uint32_t)place)
		nupa_store_relaxed(&engine->slot->n_lanes, (uint32_t)place + 1);
	return lane;
}

bool nupa_lane_vote(struct nupa_qp *qp)
{
	struct nupa_engine *engine = qp->engine;
	struct nupa_lane *lane;

	if (engine->recorder || engine->polls_bell || engine->looks)
		return false;
	lane = own_lane(engine);
	if (!lane)
		return false;
	if (qp->lane != lane || qp->send_cq->lane != lane) { /* it was another thread's */
		nupa_store_relaxed(&qp->lane, lane);
		nupa_store_relaxed(&qp->send_cq->lane, lane);
		return false;
	}
	nupa_store_relaxed(&engine->lanes_untold, true);
	if (!nupa_lock_vote(&engine->lock))
		return false;
	if (nupa_load_relaxed(engine->bell)) /* T3 */
		nupa_port_wake(engine);
	return true;
}

static void tell(uint64_t *count, const uint64_t *moved, uint64_t *told)
{
	const uint64_t now = nupa_load_relaxed(moved);

	if (now == *told)
		return;
	nupa_store_relaxed(count, *count + (now - *told));
	*told = now;
}

void nupa_lanes_tell(struct nupa_engine *engine)
{
	const uint32_t n_hosts = engine->fabric->geometry.n_hosts;

	for (uint32_t i = 0; i < NUPA_LANES_MAX; i++) {
		struct nupa_lane *lane = engine->lanes[i];

		for (uint32_t host = 0; lane && host < n_hosts; host++) {
			struct nupa_flow *flow = &engine->flows[host];
			struct nupa_lane_flow *moved = &lane->flows[host],
					      *told = &lane->told[host];

			tell(&flow->xmit_bytes, &moved->xmit_bytes, &told->xmit_bytes);
			tell(&flow->xmit_packets, &moved->xmit_packets, &told->xmit_packets);
			tell(&flow->rcv_bytes, &moved->rcv_bytes, &told->rcv_bytes);
			tell(&flow->rcv_packets, &moved->rcv_packets, &told->rcv_packets);
		}
	}
}

void nupa_lanes_forget(struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < NUPA_LANES_MAX; i++)
		if (engine->lanes[i])
			nupa_store_relaxed(&engine->lanes[i]->thread, NULL);
}

void nupa_lanes_free(struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < NUPA_LANES_MAX; i++)
		free(engine->lanes[i]);
}
