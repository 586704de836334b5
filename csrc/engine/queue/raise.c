/* SPDX-License-Identifier: BSD-3-Clause
 * Asynchronous events of queue pairs and ports, told to the contexts that they concern. */
#include "engine/queue/queue.h"

void nupa_event_raise_qp(struct nupa_qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event event = { .element.qp = &qp->ibv, .event_type = type };

	if (!qp->ibv.context || qp->orphan)
		return; /* there is no handle of it */
	nupa_event_raise(container_of(qp->ibv.context, struct nupa_context, ibv.context), &event);
}

void nupa_event_raise_port(struct nupa_engine *engine, enum ibv_event_type type)
{
	struct ibv_async_event event = { .element.port_num = 1, .event_type = type };

	for (struct nupa_list *at = engine->contexts.next; at != &engine->contexts; at = at->next)
		nupa_event_raise(container_of(at, struct nupa_context, link), &event);
}
