/* SPDX-License-Identifier: BSD-3-Clause
 * Moderation of completion events (man ibv_modify_cq): one event for so many completions, or when
 * so much time has passed since the first of them. */
#include "engine/queue/queue.h"

#include <errno.h>

/* One more completion of an armed CQ; true: its event is due. */
bool nupa_cq_moderate(struct nupa_cq *cq)
{
	struct nupa_engine *engine = nupa_engine_of(cq->ibv.context);

	if (++cq->moderated >= cq->moderate_count) {
		nupa_list_del(&cq->moderate_link);
		cq->moderated = 0;
		return true;
	}
	if (cq->moderated == 1) {
		cq->moderate_until_ns = engine->now_ns() + cq->moderate_period_ns;
		nupa_list_add(&engine->moderated, &cq->moderate_link);
		engine->cq_timers = true;
		/* A port thread that sleeps did so by the timers of before. */
		if (nupa_load_relaxed(engine->bell))
			nupa_port_wake(engine);
	}
	return false;
}

/* Raises what time has made due. */
void nupa_cq_run_timers(struct nupa_engine *engine)
{
	uint64_t now_ns = engine->now_ns();

	for (struct nupa_list *at = engine->moderated.next, *next; at != &engine->moderated;
	     at = next) {
		struct nupa_cq *cq = container_of(at, struct nupa_cq, moderate_link);

		next = at->next;
		if (now_ns < cq->moderate_until_ns)
			continue;
		nupa_list_del(&cq->moderate_link);
		cq->moderated = 0;
		nupa_cq_raise(cq);
	}
	engine->cq_timers = !nupa_list_empty(&engine->moderated);
}

uint64_t nupa_cq_next_timer_ns(const struct nupa_engine *engine)
{
	uint64_t next_ns = UINT64_MAX;

	for (struct nupa_list *at = engine->moderated.next; at != &engine->moderated;
	     at = at->next) {
		uint64_t at_ns = container_of(at, struct nupa_cq, moderate_link)->moderate_until_ns;

		next_ns = at_ns < next_ns ? at_ns : next_ns;
	}
	return next_ns;
}

/* A count or a period of 0 turns it off; a count of 1 is none. */
int nupa_modify_cq(struct ibv_cq *ibv, struct ibv_modify_cq_attr *attr)
{
	struct nupa_cq *cq = container_of(ibv, struct nupa_cq, ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);

	if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return EINVAL;
	if (!(attr->attr_mask & IBV_CQ_ATTR_MODERATE))
		return 0;
	nupa_engine_lock(engine);
	cq->moderate_count = attr->moderate.cq_period ? attr->moderate.cq_count : 0;
	cq->moderate_period_ns = attr->moderate.cq_period * UINT64_C(1000);
	if (cq->moderated) { /* completions that waited by the former rules */
		nupa_list_del(&cq->moderate_link);
		cq->moderated = 0;
		nupa_cq_raise(cq);
	}
	nupa_engine_unlock(engine);
	return 0;
}
