/* SPDX-License-Identifier: BSD-3-Clause
 * Identifiers as programs see them: created, destroyed, bound, resolved, moved between channels. */
#include "librdmacm/internal.h"

#include <stdlib.h>

struct rdma_private *rdma_private_new(struct rdma_event_channel *channel, void *context,
				      enum rdma_port_space ps, enum ibv_qp_type qp_type)
{
	struct rdma_private *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->id.channel = channel;
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = qp_type;
	nupa_list_init(&id->groups);
	pthread_mutex_init(&id->mutex, NULL);
	pthread_cond_init(&id->done, NULL);
	return id;
}

void rdma_private_free(struct rdma_private *id)
{
	if (id->cm)
		nupa_cm_free_id(id->cm);
	if (id->device)
		rdma_device_put(id->device);
	if (id->sync)
		rdma_destroy_event_channel(id->id.channel);
	free(id->qp_init_attr);
	free(id->connect);
	rdma_freeaddrinfo(id->addrinfo);
	pthread_mutex_destroy(&id->mutex);
	pthread_cond_destroy(&id->done);
	free(id);
}

int rdma_create_id_on(struct ibv_context *verbs, struct rdma_event_channel *channel,
		      struct rdma_cm_id **out, void *context, enum rdma_port_space ps,
		      enum ibv_qp_type qp_type)
{
	bool sync = !channel;
	struct rdma_private *id;
	int error;

	if (sync)
		channel = rdma_channel_open();
	if (!channel)
		return -1;
	id = rdma_private_new(channel, context, ps, qp_type);
	if (!id) {
		if (sync)
			rdma_destroy_event_channel(channel);
		return rdma_result(ENOMEM);
	}
	id->sync = sync;
	error = nupa_cm_create_id(verbs, container_of(channel, struct rdma_channel, channel)->cm,
				  ps, qp_type, id, &id->cm);
	if (error) {
		rdma_private_free(id);
		return rdma_result(error);
	}
	*out = &id->id;
	return 0;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps)
{
	struct ibv_context *verbs = rdma_default_context();

	if (!verbs)
		return -1;
	return rdma_create_id_on(verbs, channel, id, context, ps,
				 ps == RDMA_PS_IPOIB || ps == RDMA_PS_UDP ? IBV_QPT_UD
									  : IBV_QPT_RC);
}

int rdma_destroy_id(struct rdma_cm_id *ibv)
{
	struct rdma_private *id = rdma_private_of(ibv);
	uint32_t got;

	rdma_leave_all(id);
	got = nupa_cm_destroy_id(id->cm);
	rdma_drop_event(id);
	rdma_wait_done(id, &id->events_done, got);
	rdma_private_free(id);
	return 0;
}

int rdma_refresh(struct rdma_private *id)
{
	struct nupa_cm_route route;

	nupa_cm_query(id->cm, &route);
	id->id.route.addr.src_storage = route.src;
	id->id.route.addr.dst_storage = route.dst;
	if (!route.bound)
		return 0;
	if (!id->device) {
		id->device = rdma_device_get(nupa_cm_context(id->cm));
		if (!id->device)
			return errno;
		id->id.verbs = id->device->verbs;
		if (!id->id.pd)
			id->id.pd = id->device->pd;
		id->id.port_num = 1;
	}
	id->id.route.addr.addr.ibaddr.sgid = route.sgid;
	id->id.route.addr.addr.ibaddr.dgid = route.dgid;
	id->id.route.addr.addr.ibaddr.pkey = __builtin_bswap16(route.pkey);
	if (route.n_paths) {
		id->path = route.path;
		id->id.route.path_rec = &id->path;
		id->id.route.num_paths = (int)route.n_paths;
	}
	return 0;
}

/* --- options and channels ------------------------------------------------------------ */

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
	if (!optval)
		return rdma_result(EINVAL);
	return rdma_result(
	    nupa_cm_set_option(rdma_private_of(id)->cm, level, optname, optval, optlen));
}

int rdma_migrate_id(struct rdma_cm_id *ibv, struct rdma_event_channel *channel)
{
	struct rdma_private *id = rdma_private_of(ibv);
	struct rdma_event_channel *old = ibv->channel;
	bool was_sync = id->sync, sync = !channel;
	uint32_t got;
	int error;

	if (was_sync && sync)
		return rdma_result(EINVAL);
	if (sync)
		channel = rdma_channel_open();
	if (!channel)
		return -1;
	error = nupa_cm_migrate_id(id->cm, container_of(channel, struct rdma_channel, channel)->cm,
				   &got);
	if (error) {
		if (sync)
			rdma_destroy_event_channel(channel);
		return rdma_result(error);
	}
	if (was_sync)
		rdma_drop_event(id);
	/* man rdma_migrate_id: blocks while events are not acknowledged. */
	rdma_wait_done(id, &id->events_done, got);
	if (was_sync)
		rdma_destroy_event_channel(old);
	id->sync = sync;
	ibv->channel = channel;
	return 0;
}

/* --- ECE: for programs that bring their own QPs -------------------------------------- */

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	/* Of no vendor: the result of ibv_query_ece for this device's QPs, which programs pass
	 * on. */
	if (!id || id->qp || !ece || ece->comp_mask)
		return rdma_result(EINVAL);
	rdma_private_of(id)->local_ece = *ece;
	return 0;
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece)
		return rdma_result(EINVAL);
	*ece = rdma_private_of(id)->remote_ece;
	ece->comp_mask = 0;
	return 0;
}
