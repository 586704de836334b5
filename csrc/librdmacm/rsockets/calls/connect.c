/* SPDX-License-Identifier: BSD-3-Clause
 * The calls of <rdma/rsocket.h> that create, name and connect sockets. */
#include "librdmacm/rsockets/datagram/datagram.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

#ifndef AF_IB
#define AF_IB 27
#endif

/* A new descriptor.  -1 with errno: EAFNOSUPPORT, EPROTONOSUPPORT, ENODEV without a fabric. */
int rsocket(int domain, int type, int protocol)
{
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct rsocket *rs;

	if (domain != AF_INET && domain != AF_INET6 && domain != AF_IB)
		return RS_ERROR(EAFNOSUPPORT);
	if (kind == SOCK_STREAM  ? protocol && protocol != IPPROTO_TCP
	    : kind == SOCK_DGRAM ? protocol && protocol != IPPROTO_UDP
				 : true)
		return RS_ERROR(EPROTONOSUPPORT);
	rs = rs_new(domain, kind, kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP);
	if (!rs)
		return -1;
	rs->nonblocking = (type & SOCK_NONBLOCK) != 0;
	if (rs_new_id(rs) || (kind == SOCK_DGRAM && rs_create_datagrams(rs))) {
		int code = errno;

		rs_hide(rs);
		rs_put(rs);
		return RS_ERROR(code);
	}
	return rs->fd;
}

/* -1 with errno: EINVAL, EAFNOSUPPORT, EADDRINUSE, EADDRNOTAVAIL. */
int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	struct rsocket *rs = rs_get(socket);
	int result;

	if (!rs)
		return -1;
	pthread_mutex_lock(&rs->control);
	result = rs_is_address(rs, addr, addrlen) ? rs_bind(rs, addr, addrlen)
						  : RS_ERROR(addr ? EAFNOSUPPORT : EFAULT);
	pthread_mutex_unlock(&rs->control);
	rs_put(rs);
	return result;
}

/* -1 with errno: EOPNOTSUPP for datagrams, EINVAL when connected, EADDRINUSE. */
int rlisten(int socket, int backlog)
{
	struct rsocket *rs = rs_get(socket);
	int state, result;

	if (!rs)
		return -1;
	pthread_mutex_lock(&rs->control);
	state = nupa_load_relaxed(&rs->state);
	if (rs->type != SOCK_STREAM)
		result = RS_ERROR(EOPNOTSUPP);
	else if (state != RS_INIT && state != RS_LISTENING)
		result = RS_ERROR(EINVAL);
	else
		result = rs_bind_anywhere(rs) ? -1 : rs_start_listening(rs, backlog);
	pthread_mutex_unlock(&rs->control);
	rs_put(rs);
	return result;
}

/* The new descriptor; -1 with errno: EAGAIN, EINVAL when it does not listen, EINTR. */
int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rsocket *rs = rs_get(socket), *connection = NULL;
	int result = -1;

	if (!rs)
		return -1;
	for (;;) {
		if (nupa_load_acquire(&rs->state) != RS_LISTENING) {
			errno = EINVAL;
			break;
		}
		connection = rs_next_connection(rs);
		if (connection)
			break;
		if (nupa_load_relaxed(&rs->nonblocking)) {
			errno = EAGAIN;
			break;
		}
		if (rs_wait(rs, rs_can_read, rs_deadline(rs->options.receive_ns)))
			break;
	}
	if (connection) {
		rs_put_address(rdma_get_peer_addr(connection->id), connection->domain, addr,
			       addrlen);
		result = connection->fd;
	}
	rs_put(rs);
	return result;
}

static bool is_settled(struct rsocket *rs)
{
	int state = nupa_load_acquire(&rs->state);

	return state == RS_INIT || state == RS_CONNECTED;
}

static int connect_stream(struct rsocket *rs, const struct sockaddr *addr)
{
	int state, code, result = 0;

	pthread_mutex_lock(&rs->control);
	state = nupa_load_relaxed(&rs->state);
	if (state == RS_CONNECTED || state == RS_ACCEPTED || state == RS_LISTENING)
		result = RS_ERROR(EISCONN);
	else if (state == RS_INIT)
		result = rs->broken ? RS_ERROR(ENETDOWN) : rs_start_connect(rs, addr);
	pthread_mutex_unlock(&rs->control);
	if (result)
		return -1;
	rs_take_cm_events(rs);
	if (!is_settled(rs)) {
		if (nupa_load_relaxed(&rs->nonblocking))
			return RS_ERROR(state == RS_INIT ? EINPROGRESS : EALREADY);
		if (rs_wait(rs, is_settled, rs_deadline(rs->options.send_ns)))
			return errno == EAGAIN ? RS_ERROR(EINPROGRESS) : -1;
	}
	if (nupa_load_acquire(&rs->state) == RS_CONNECTED)
		return 0;
	code = rs_take_error(rs);
	return RS_ERROR(code ? code : ECONNABORTED); /* another thread took the error */
}

/* -1 with errno: EINPROGRESS, EALREADY, EISCONN, ECONNREFUSED, EHOSTUNREACH, ETIMEDOUT. */
int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	struct rsocket *rs = rs_get(socket);
	int result;

	if (!rs)
		return -1;
	if (!rs_is_address(rs, addr, addrlen))
		result = RS_ERROR(addr ? EAFNOSUPPORT : EFAULT);
	else
		result = rs->datagrams ? rs_connect_datagrams(rs, addr) : connect_stream(rs, addr);
	rs_put(rs);
	return result;
}

int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rsocket *rs = rs_get(socket);
	int state, result = 0;

	if (!rs)
		return -1;
	state = nupa_load_acquire(&rs->state);
	if (!addrlen)
		result = RS_ERROR(EFAULT);
	else if (rs->datagrams && rs_datagram_peer(rs))
		rs_put_address(rs_datagram_peer(rs), rs->domain, addr, addrlen);
	else if (state != RS_CONNECTED && state != RS_ACCEPTED)
		result = RS_ERROR(ENOTCONN);
	else
		rs_put_address(rdma_get_peer_addr(rs->id), rs->domain, addr, addrlen);
	rs_put(rs);
	return result;
}

int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rsocket *rs = rs_get(socket);
	struct sockaddr_storage none = { 0 };
	int result = 0;

	if (!rs)
		return -1;
	pthread_mutex_lock(&rs->control);
	none.ss_family = (sa_family_t)rs->domain;
	if (!addrlen)
		result = RS_ERROR(EFAULT);
	else if (!rs->id || !rdma_get_local_addr(rs->id)->sa_family)
		rs_put_address((struct sockaddr *)&none, rs->domain, addr, addrlen);
	else
		rs_put_address(rdma_get_local_addr(rs->id), rs->domain, addr, addrlen);
	pthread_mutex_unlock(&rs->control);
	rs_put(rs);
	return result;
}

/* F_GETFL and F_SETFL know O_NONBLOCK; F_GETFD and F_SETFD are the descriptor's own.  -1 with
 * errno EINVAL for other commands. */
int rfcntl(int socket, int cmd, ...)
{
	struct rsocket *rs = rs_get(socket);
	va_list arguments;
	int argument = 0;
	int result;

	if (!rs)
		return -1;
	if (cmd == F_SETFL || cmd == F_SETFD) {
		va_start(arguments, cmd);
		argument = va_arg(arguments, int);
		va_end(arguments);
	}
	switch (cmd) {
	case F_GETFL:
		result = O_RDWR | (nupa_load_relaxed(&rs->nonblocking) ? O_NONBLOCK : 0);
		break;
	case F_SETFL:
		nupa_store_relaxed(&rs->nonblocking, (argument & O_NONBLOCK) != 0);
		result = 0;
		break;
	case F_GETFD:
	case F_SETFD:
		result = fcntl(rs->fd, cmd, argument);
		break;
	default:
		result = RS_ERROR(EINVAL);
	}
	rs_put(rs);
	return result;
}
