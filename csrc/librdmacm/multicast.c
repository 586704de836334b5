/* SPDX-License-Identifier: BSD-3-Clause
 * Multicast groups joined and left by address. */
#include "librdmacm/internal.h"

#include <stdlib.h>

static socklen_t addr_bytes(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	return addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

static int join(struct rdma_private *id, struct sockaddr *addr, uint32_t flags, void *context)
{
	socklen_t bytes = addr ? addr_bytes(addr) : 0;
	struct rdma_group *group;
	int error;

	if (!bytes)
		return rdma_result(EINVAL);
	group = calloc(1, sizeof(*group));
	if (!group)
		return rdma_result(ENOMEM);
	group->id = id;
	group->context = context;
	group->send_only = flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
	memcpy(&group->addr, addr, bytes);
	pthread_mutex_lock(&id->mutex);
	nupa_list_add(&id->groups, &group->link);
	pthread_mutex_unlock(&id->mutex);
	error = nupa_cm_join(id->cm, addr, &group->cm);
	if (!error)
		return rdma_complete(id);
	pthread_mutex_lock(&id->mutex);
	nupa_list_del(&group->link);
	pthread_mutex_unlock(&id->mutex);
	free(group);
	return rdma_result(error);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
			   void *context)
{
	const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return rdma_result(EOPNOTSUPP);
	if (attr->comp_mask != needed)
		return rdma_result(EINVAL);
	if (attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return rdma_result(EOPNOTSUPP);
	return join(rdma_private_of(id), attr->addr, attr->join_flags, context);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return join(rdma_private_of(id), addr, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

int rdma_leave_multicast(struct rdma_cm_id *ibv, struct sockaddr *addr)
{
	struct rdma_private *id = rdma_private_of(ibv);
	socklen_t bytes = addr ? addr_bytes(addr) : 0;
	struct rdma_group *found = NULL;

	if (!bytes)
		return rdma_result(EINVAL);
	pthread_mutex_lock(&id->mutex);
	for (struct nupa_list *at = id->groups.next; at != &id->groups && !found; at = at->next) {
		struct rdma_group *group = container_of(at, struct rdma_group, link);

		if (!memcmp(&group->addr, addr, bytes))
			found = group;
	}
	if (found)
		nupa_list_del(&found->link);
	pthread_mutex_unlock(&id->mutex);
	return found ? rdma_leave_group(id, found) : rdma_result(EADDRNOTAVAIL);
}
