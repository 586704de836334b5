/* SPDX-License-Identifier: BSD-3-Clause
 * Addresses of identifiers: bound, resolved, listened at. */
#include "librdmacm/internal.h"

int rdma_bind_addr(struct rdma_cm_id *ibv, struct sockaddr *addr)
{
	struct rdma_private *id = rdma_private_of(ibv);
	int error = nupa_cm_bind(id->cm, addr);

	return rdma_result(error ? error : rdma_refresh(id));
}

int rdma_resolve_addr(struct rdma_cm_id *ibv, struct sockaddr *src_addr, struct sockaddr *dst_addr,
		      int timeout_ms)
{
	struct rdma_private *id = rdma_private_of(ibv);
	int error = dst_addr ? nupa_cm_resolve_addr(id->cm, src_addr, dst_addr) : EINVAL;

	(void)timeout_ms; /* the fabric knows its hosts */
	return error ? rdma_result(error) : rdma_complete(id);
}

int rdma_resolve_route(struct rdma_cm_id *ibv, int timeout_ms)
{
	struct rdma_private *id = rdma_private_of(ibv);
	int error = nupa_cm_resolve_route(id->cm);

	(void)timeout_ms;
	return error ? rdma_result(error) : rdma_complete(id);
}

int rdma_listen(struct rdma_cm_id *ibv, int backlog)
{
	struct rdma_private *id = rdma_private_of(ibv);
	int error = nupa_cm_listen(id->cm, backlog);

	return rdma_result(error ? error : rdma_refresh(id));
}

static uint16_t port_of(const struct sockaddr_storage *addr)
{
	if (addr->ss_family == AF_INET)
		return ((const struct sockaddr_in *)(const void *)addr)->sin_port;
	if (addr->ss_family == AF_INET6)
		return ((const struct sockaddr_in6 *)(const void *)addr)->sin6_port;
	return 0;
}

uint16_t rdma_get_src_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.src_storage);
}

uint16_t rdma_get_dst_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.dst_storage);
}
