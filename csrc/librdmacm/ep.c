/* SPDX-License-Identifier: BSD-3-Clause
 * Endpoints: an id made from a result of rdma_getaddrinfo, in one call; and rdma_getaddrinfo,
 * rdma_resolve_addrinfo, rdma_query_addrinfo. */
#include "librdmacm/internal.h"

#include <netdb.h>
#include <stdlib.h>

#define RESOLVE_MS 2000

/* --- endpoints ----------------------------------------------------------------------- */

static int passive(struct rdma_private *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
		   const struct ibv_qp_init_attr *qp_init_attr)
{
	if (rdma_bind_addr(&id->id, res->ai_src_addr))
		return -1;
	if (pd)
		id->id.pd = pd;
	if (!qp_init_attr)
		return 0;
	id->qp_init_attr = malloc(sizeof(*qp_init_attr));
	if (!id->qp_init_attr)
		return rdma_result(ENOMEM);
	*id->qp_init_attr = *qp_init_attr;
	id->qp_init_attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return 0;
}

static int active(struct rdma_private *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
		  struct ibv_qp_init_attr *qp_init_attr)
{
	int ret = rdma_resolve_addr(&id->id, res->ai_src_addr, res->ai_dst_addr, RESOLVE_MS);

	if (ret)
		return ret;
	if (res->ai_route_len) {
		ret = rdma_set_option(&id->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, res->ai_route,
				      res->ai_route_len);
		if (!ret)
			ret = rdma_complete(id);
	} else {
		ret = rdma_resolve_route(&id->id, RESOLVE_MS);
	}
	if (ret)
		return ret;
	if (qp_init_attr) {
		qp_init_attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
		ret = rdma_create_qp(&id->id, pd, qp_init_attr);
		if (ret)
			return ret;
	}
	if (res->ai_connect_len) {
		id->connect = malloc(res->ai_connect_len);
		if (!id->connect)
			return rdma_result(ENOMEM);
		memcpy(id->connect, res->ai_connect, res->ai_connect_len);
		id->connect_len = res->ai_connect_len;
	}
	return 0;
}

int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *qp_init_attr)
{
	struct ibv_context *verbs = rdma_default_context();
	struct rdma_cm_id *id;
	int ret, error;

	if (!verbs)
		return -1;
	ret = rdma_create_id_on(verbs, NULL, &id, NULL, (enum rdma_port_space)res->ai_port_space,
				(enum ibv_qp_type)res->ai_qp_type);
	if (ret)
		return ret;
	ret = (res->ai_flags & RAI_PASSIVE ? passive(rdma_private_of(id), res, pd, qp_init_attr)
					   : active(rdma_private_of(id), res, pd, qp_init_attr));
	if (ret) {
		error = errno;
		rdma_destroy_ep(id);
		errno = error;
		return ret;
	}
	*out = id;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

/* --- addresses ----------------------------------------------------------------------- */

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_route);
		free(res->ai_connect);
		free(res);
		res = next;
	}
}

static int copy(const void *from, size_t bytes, void **to)
{
	if (!from || !bytes)
		return 0;
	*to = malloc(bytes);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, bytes);
	return 0;
}

static int copy_addr(const struct sockaddr *from, socklen_t bytes, struct sockaddr **to,
		     socklen_t *to_bytes)
{
	void *copied = NULL;
	int error = copy(from, bytes, &copied);

	*to = copied;
	*to_bytes = copied ? bytes : 0;
	return error;
}

static bool is_connected(int qp_type)
{
	return qp_type == IBV_QPT_RC || qp_type == IBV_QPT_UC || qp_type == IBV_QPT_XRC_SEND ||
	       qp_type == IBV_QPT_XRC_RECV;
}

static int lookup(const char *node, const char *service, const struct rdma_addrinfo *hints,
		  struct rdma_addrinfo *rai)
{
	struct addrinfo ask = { 0 }, *found;
	int error;

	if (rai->ai_flags & RAI_PASSIVE)
		ask.ai_flags |= AI_PASSIVE;
	if (rai->ai_flags & RAI_NUMERICHOST)
		ask.ai_flags |= AI_NUMERICHOST;
	if (rai->ai_flags & RAI_FAMILY)
		ask.ai_family = hints->ai_family;
	ask.ai_socktype = is_connected(rai->ai_qp_type) ? SOCK_STREAM : SOCK_DGRAM;
	ask.ai_protocol = ask.ai_socktype == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
	error = getaddrinfo(node, service, &ask, &found);
	if (error)
		return error;
	rai->ai_family = found->ai_family;
	if (rai->ai_flags & RAI_PASSIVE)
		error = copy_addr(found->ai_addr, found->ai_addrlen, &rai->ai_src_addr,
				  &rai->ai_src_len);
	else
		error = copy_addr(found->ai_addr, found->ai_addrlen, &rai->ai_dst_addr,
				  &rai->ai_dst_len);
	freeaddrinfo(found);
	return error;
}

/* QP type and port space follow from each other; both may be given. */
static void choose_service(const struct rdma_addrinfo *hints, struct rdma_addrinfo *rai)
{
	rai->ai_flags = hints->ai_flags;
	rai->ai_qp_type = hints->ai_qp_type;
	rai->ai_port_space = hints->ai_port_space;
	if (!rai->ai_qp_type)
		rai->ai_qp_type =
		    rai->ai_port_space == RDMA_PS_UDP || rai->ai_port_space == RDMA_PS_IPOIB
			? IBV_QPT_UD
			: IBV_QPT_RC;
	if (!rai->ai_port_space)
		rai->ai_port_space = is_connected(rai->ai_qp_type) ? RDMA_PS_TCP : RDMA_PS_UDP;
}

static int fill(const char *node, const char *service, const struct rdma_addrinfo *hints,
		struct rdma_addrinfo *rai)
{
	void *part = NULL;
	int error;

	choose_service(hints, rai);
	if (node || service) {
		error = lookup(node, service, hints, rai);
	} else {
		rai->ai_family = hints->ai_family;
		error = copy_addr(hints->ai_dst_addr, hints->ai_dst_len, &rai->ai_dst_addr,
				  &rai->ai_dst_len);
	}
	if (!error && !rai->ai_src_len)
		error = copy_addr(hints->ai_src_addr, hints->ai_src_len, &rai->ai_src_addr,
				  &rai->ai_src_len);
	if (!error)
		error = copy(hints->ai_route, hints->ai_route_len, &part);
	rai->ai_route = part;
	rai->ai_route_len = part ? hints->ai_route_len : 0;
	part = NULL;
	if (!error)
		error = copy(hints->ai_connect, hints->ai_connect_len, &part);
	rai->ai_connect = part;
	rai->ai_connect_len = part ? hints->ai_connect_len : 0;
	return error;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res)
{
	static const struct rdma_addrinfo none;
	struct rdma_addrinfo *rai;
	int error;

	if (!node && !service && !hints)
		return rdma_result(EINVAL);
	rai = calloc(1, sizeof(*rai));
	if (!rai)
		return rdma_result(ENOMEM);
	error = fill(node, service, hints ? hints : &none, rai);
	if (error) {
		rdma_freeaddrinfo(rai);
		return error;
	}
	*res = rai;
	return 0;
}

/* As rdma-core: the name is looked up before the call returns, and the event says the result. */
int rdma_resolve_addrinfo(struct rdma_cm_id *ibv, const char *node, const char *service,
			  const struct rdma_addrinfo *hints)
{
	int flags = hints ? hints->ai_flags : 0, status;
	enum rdma_cm_event_type type = RDMA_CM_EVENT_ADDRINFO_RESOLVED;
	struct rdma_addrinfo *found = NULL;
	struct rdma_private *id;

	if (!ibv || (flags & RAI_SA && flags & RAI_DNS))
		return rdma_result(EINVAL);
	if (flags & RAI_SA) /* service records: the fabric has no subnet administrator */
		return rdma_result(EOPNOTSUPP);
	id = rdma_private_of(ibv);
	status = rdma_getaddrinfo(node, service, hints, &found);
	if (status) {
		type = RDMA_CM_EVENT_ADDRINFO_ERROR;
		status = status == -1 ? -errno : status;
	}
	pthread_mutex_lock(&id->mutex);
	rdma_freeaddrinfo(id->addrinfo);
	id->addrinfo = found;
	pthread_mutex_unlock(&id->mutex);
	if (rdma_result(nupa_cm_write_event(id->cm, type, status, 0)))
		return -1;
	return rdma_complete(id);
}

/* The caller frees the result, and gets it once: ENODATA where there is none. */
int rdma_query_addrinfo(struct rdma_cm_id *ibv, struct rdma_addrinfo **info)
{
	struct rdma_private *id;

	if (!ibv || !info)
		return rdma_result(EINVAL);
	id = rdma_private_of(ibv);
	pthread_mutex_lock(&id->mutex);
	*info = id->addrinfo;
	id->addrinfo = NULL;
	pthread_mutex_unlock(&id->mutex);
	return rdma_result(*info ? 0 : ENODATA);
}
