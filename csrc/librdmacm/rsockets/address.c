/* SPDX-License-Identifier: BSD-3-Clause
 * Addresses of sockets: their sizes, and binding. */
#include "librdmacm/rsockets/internal.h"

#include <errno.h>

#define SOCKADDR_IB_BYTES 48

socklen_t rs_address_bytes(int family)
{
	return family == AF_INET6  ? sizeof(struct sockaddr_in6)
	       : family == AF_INET ? sizeof(struct sockaddr_in)
				   : SOCKADDR_IB_BYTES;
}

bool rs_is_address(const struct rsocket *rs, const struct sockaddr *addr, socklen_t bytes)
{
	if (!addr || bytes < sizeof(addr->sa_family) || addr->sa_family != rs->domain)
		return false;
	return bytes >= rs_address_bytes(rs->domain);
}

void rs_put_address(const struct sockaddr *from, int family, struct sockaddr *addr,
		    socklen_t *bytes)
{
	socklen_t length = rs_address_bytes(family);

	if (!bytes)
		return;
	if (addr)
		memcpy(addr, from, *bytes < length ? *bytes : length);
	*bytes = length;
}

/* Under `control`.  -1 with errno, as rbind. */
int rs_bind(struct rsocket *rs, const struct sockaddr *addr, socklen_t bytes)
{
	struct sockaddr_storage to = { 0 };

	if (rs->is_bound || nupa_load_relaxed(&rs->state) != RS_INIT || !rs->id)
		return RS_ERROR(EINVAL);
	memcpy(&to, addr, bytes < sizeof(to) ? bytes : sizeof(to));
	if (rs_apply_id_options(rs))
		return -1;
	if (rdma_bind_addr(rs->id, (struct sockaddr *)&to)) /* ENODEV: another host's */
		return RS_ERROR(errno == ENODEV ? EADDRNOTAVAIL : errno);
	rs->is_bound = 1;
	return rs->datagrams ? rs->datagram_ops->bound(rs) : 0;
}

/* An unbound one gets a port of the fabric's choice.  Under `control`. */
int rs_bind_anywhere(struct rsocket *rs)
{
	struct sockaddr_storage any = { .ss_family = (sa_family_t)rs->domain };

	return rs->is_bound ? 0
			    : rs_bind(rs, (struct sockaddr *)&any, rs_address_bytes(rs->domain));
}
