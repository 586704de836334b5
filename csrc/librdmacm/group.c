/* SPDX-License-Identifier: BSD-3-Clause
 * The multicast groups of an id: its QP is attached when the program gets the event of the join. */
#include "librdmacm/internal.h"

#include <stdlib.h>

int rdma_group_joined(struct rdma_group *group, const struct nupa_cm_event *event)
{
	struct ibv_qp *qp = group->id->id.qp;
	int error;

	group->mgid = event->ah.grh.dgid;
	group->mlid = event->ah.dlid;
	if (!qp || group->send_only)
		return 0;
	error = ibv_attach_mcast(qp, &group->mgid, group->mlid);
	group->attached = !error;
	return -error;
}

/* It was removed from the list before. */
int rdma_leave_group(struct rdma_private *id, struct rdma_group *group)
{
	uint32_t got = nupa_cm_leave(id->cm, &group->cm);
	int error = 0;

	if (id->sync)
		rdma_drop_event(id);
	/* Another thread may have got the event, and be about to attach the QP. */
	rdma_wait_done(id, &group->events_done, got);
	if (group->attached && id->id.qp)
		error = ibv_detach_mcast(id->id.qp, &group->mgid, group->mlid);
	free(group);
	return rdma_result(error);
}

/* man rdma_leave_multicast: destroying an id leaves all its groups. */
void rdma_leave_all(struct rdma_private *id)
{
	for (;;) {
		struct nupa_list *link;

		pthread_mutex_lock(&id->mutex);
		link = nupa_list_pop(&id->groups);
		pthread_mutex_unlock(&id->mutex);
		if (!link)
			return;
		(void)rdma_leave_group(id, container_of(link, struct rdma_group, link));
	}
}
