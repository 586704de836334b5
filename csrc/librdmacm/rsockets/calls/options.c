/* SPDX-License-Identifier: BSD-3-Clause
 * Socket options: a table of those that are a number, and the few others. */
#include "librdmacm/rsockets/internal.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/time.h>

enum { READ_ONLY = 1, BOOLEAN = 2, BEFORE_CONNECTING = 4 };

struct option {
	int level, name;
	size_t offset; /* of an int in struct rs_options */
	int flags;
	int least, most;
};

#define NUMBER(level, name, field, flags, least, most)                                             \
	{                                                                                          \
		level, name, offsetof(struct rs_options, field), flags, least, most                \
	}
#define YES_OR_NO(level, name, field) NUMBER(level, name, field, BOOLEAN, INT32_MIN, INT32_MAX)

static const struct option options[] = {
	NUMBER(SOL_SOCKET, SO_RCVBUF, rcvbuf, 0, 1, INT32_MAX),
	NUMBER(SOL_SOCKET, SO_SNDBUF, sndbuf, 0, 1, INT32_MAX),
	YES_OR_NO(SOL_SOCKET, SO_REUSEADDR, reuse_address),
	YES_OR_NO(SOL_SOCKET, SO_REUSEPORT, reuse_port),
	YES_OR_NO(SOL_SOCKET, SO_KEEPALIVE, keepalive),
	YES_OR_NO(SOL_SOCKET, SO_OOBINLINE, oob_inline),
	YES_OR_NO(SOL_SOCKET, SO_BROADCAST, broadcast),
	YES_OR_NO(IPPROTO_TCP, TCP_NODELAY, nodelay),
	NUMBER(IPPROTO_TCP, TCP_KEEPIDLE, keep_idle, 0, 1, 32767),
	NUMBER(IPPROTO_TCP, TCP_KEEPINTVL, keep_interval, 0, 1, 32767),
	NUMBER(IPPROTO_TCP, TCP_KEEPCNT, keep_count, 0, 1, 127),
	NUMBER(IPPROTO_TCP, TCP_MAXSEG, max_segment, READ_ONLY, 0, 0),
	YES_OR_NO(IPPROTO_IPV6, IPV6_V6ONLY, v6_only),
	NUMBER(IPPROTO_IP, IP_TOS, tos, 0, 0, 255),
	NUMBER(IPPROTO_IPV6, IPV6_TCLASS, tos, 0, 0, 255),
	NUMBER(SOL_RDMA, RDMA_SQSIZE, sq_size, BEFORE_CONNECTING, 1, UINT16_MAX),
	NUMBER(SOL_RDMA, RDMA_RQSIZE, rq_size, BEFORE_CONNECTING, 1, UINT16_MAX),
	NUMBER(SOL_RDMA, RDMA_INLINE, inline_bytes, BEFORE_CONNECTING, 0, UINT16_MAX),
	NUMBER(SOL_RDMA, RDMA_IOMAPSIZE, iomap_size, BEFORE_CONNECTING, 0, UINT16_MAX),
};

static const struct option *find(int level, int name)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (options[i].level == level && options[i].name == name)
			return &options[i];
	return NULL;
}

static int *value_of(struct rsocket *rs, const struct option *option)
{
	return (int *)(void *)((char *)&rs->options + option->offset);
}

/* 0 or an errno, as everything below. */
static int set_number(struct rsocket *rs, const struct option *option, const void *from,
		      socklen_t bytes)
{
	int state = nupa_load_acquire(&rs->state);
	int value;

	if (bytes < sizeof(value))
		return EINVAL;
	memcpy(&value, from, sizeof(value));
	if (option->flags & READ_ONLY)
		return ENOPROTOOPT;
	if ((option->flags & BEFORE_CONNECTING) && state != RS_INIT && state != RS_LISTENING)
		return EINVAL;
	if (value < option->least || value > option->most)
		return EINVAL;
	*value_of(rs, option) = option->flags & BOOLEAN ? value != 0 : value;
	return 0;
}

static int set_timeout(int64_t *ns, const void *from, socklen_t bytes)
{
	struct timeval time;

	if (bytes < sizeof(time))
		return EINVAL;
	memcpy(&time, from, sizeof(time));
	if (time.tv_usec < 0 || time.tv_usec >= 1000000)
		return EDOM;
	if (time.tv_sec < 0 || time.tv_sec > INT32_MAX)
		*ns = RS_FOREVER;
	else if (!time.tv_sec && !time.tv_usec)
		*ns = RS_FOREVER; /* man socket(7): zero never times out */
	else
		*ns = time.tv_sec * INT64_C(1000000000) + time.tv_usec * INT64_C(1000);
	return 0;
}

static int set_route(struct rs_options *to, const void *from, socklen_t bytes)
{
	void *copy;

	if (!bytes || bytes > 4096)
		return EINVAL;
	copy = malloc(bytes);
	if (!copy)
		return ENOMEM;
	memcpy(copy, from, bytes);
	free(to->route);
	to->route = copy;
	to->route_bytes = bytes;
	return 0;
}

static int set(struct rsocket *rs, int level, int name, const void *from, socklen_t bytes)
{
	const struct option *option = find(level, name);

	if (!from)
		return EFAULT;
	if (option)
		return set_number(rs, option, from, bytes);
	if (level == SOL_RDMA && name == RDMA_ROUTE)
		return set_route(&rs->options, from, bytes);
	if (level != SOL_SOCKET)
		return ENOPROTOOPT;
	switch (name) {
	case SO_LINGER:
		if (bytes < sizeof(struct linger))
			return EINVAL;
		memcpy(&rs->options.linger, from, sizeof(struct linger));
		return 0;
	case SO_RCVTIMEO:
		return set_timeout(&rs->options.receive_ns, from, bytes);
	case SO_SNDTIMEO:
		return set_timeout(&rs->options.send_ns, from, bytes);
	default:
		return ENOPROTOOPT;
	}
}

static int give(const void *from, socklen_t has, void *to, socklen_t *bytes)
{
	if (*bytes > has)
		*bytes = has;
	memcpy(to, from, *bytes);
	return 0;
}

static int give_int(int value, void *to, socklen_t *bytes)
{
	return give(&value, sizeof(value), to, bytes);
}

static int give_timeout(int64_t ns, void *to, socklen_t *bytes)
{
	struct timeval time = { 0 };

	if (ns != RS_FOREVER) {
		time.tv_sec = ns / 1000000000;
		time.tv_usec = ns % 1000000000 / 1000;
	}
	return give(&time, sizeof(time), to, bytes);
}

static int get_of_socket(struct rsocket *rs, int name, void *to, socklen_t *bytes)
{
	switch (name) {
	case SO_ERROR:
		rs_take_cm_events(rs);
		return give_int(rs_take_error(rs), to, bytes);
	case SO_TYPE:
		return give_int(rs->type, to, bytes);
	case SO_DOMAIN:
		return give_int(rs->domain, to, bytes);
	case SO_PROTOCOL:
		return give_int(rs->protocol, to, bytes);
	case SO_ACCEPTCONN:
		return give_int(nupa_load_acquire(&rs->state) == RS_LISTENING, to, bytes);
	case SO_LINGER:
		return give(&rs->options.linger, sizeof(struct linger), to, bytes);
	case SO_RCVTIMEO:
		return give_timeout(rs->options.receive_ns, to, bytes);
	case SO_SNDTIMEO:
		return give_timeout(rs->options.send_ns, to, bytes);
	default:
		return ENOPROTOOPT;
	}
}

static int get(struct rsocket *rs, int level, int name, void *to, socklen_t *bytes)
{
	const struct option *option = find(level, name);

	if (!to || !bytes)
		return EFAULT;
	if (option)
		return give_int(*value_of(rs, option), to, bytes);
	if (level == SOL_SOCKET)
		return get_of_socket(rs, name, to, bytes);
	if (level != SOL_RDMA || name != RDMA_ROUTE)
		return ENOPROTOOPT;
	if (!rs->options.route)
		return ENODATA;
	return give(rs->options.route, rs->options.route_bytes, to, bytes);
}

/* -1 with errno: ENOPROTOOPT, EINVAL, EFAULT. */
int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
	struct rsocket *rs = rs_get(socket);
	int code;

	if (!rs)
		return -1;
	pthread_mutex_lock(&rs->control);
	code = set(rs, level, optname, optval, optlen);
	pthread_mutex_unlock(&rs->control);
	rs_put(rs);
	return code ? RS_ERROR(code) : 0;
}

/* -1 with errno: ENOPROTOOPT, EFAULT, ENODATA for a route that was not set. */
int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	struct rsocket *rs = rs_get(socket);
	int code;

	if (!rs)
		return -1;
	code = get(rs, level, optname, optval, optlen);
	rs_put(rs);
	return code ? RS_ERROR(code) : 0;
}
