/* SPDX-License-Identifier: BSD-3-Clause
 * The calls that move data, in all the forms that sockets have. */
#include "librdmacm/rsockets/datagram/datagram.h"

#include <errno.h>

#define PIECES_MAX 1024 /* IOV_MAX */
#define SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR | MSG_CONFIRM | MSG_DONTROUTE)
#define RECEIVE_FLAGS                                                                              \
	(MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC | MSG_TRUNC)

/* 0, or an errno. */
static int gather(struct rs_pieces *pieces, const struct iovec *iov, size_t n)
{
	*pieces = (struct rs_pieces){ .iov = iov, .n = (int)n };
	if (n > PIECES_MAX)
		return EMSGSIZE;
	for (size_t i = 0; i < n; i++) {
		if (iov[i].iov_len > PTRDIFF_MAX - pieces->left)
			return EINVAL;
		pieces->left += iov[i].iov_len;
	}
	return 0;
}

static ssize_t send_message(int socket, const struct msghdr *message, int flags)
{
	struct rsocket *rs = rs_get(socket);
	struct rs_pieces from;
	ssize_t result;
	int code;

	if (!rs)
		return -1;
	code = gather(&from, message->msg_iov, message->msg_iovlen);
	/* rdma-core's own programs send in a loop with MSG_WAITALL. */
	if (!code && ((flags & ~(SEND_FLAGS | MSG_WAITALL)) || message->msg_controllen))
		code = EOPNOTSUPP;
	if (!code && rs->datagrams && message->msg_name &&
	    !rs_is_address(rs, message->msg_name, message->msg_namelen))
		code = EAFNOSUPPORT;
	if (code)
		result = RS_ERROR(code);
	else if (rs->datagrams)
		result = rs_datagram_send(rs, &from, flags, message->msg_name);
	else
		result = rs_stream_send(rs, &from, flags);
	rs_put(rs);
	return result;
}

static ssize_t receive_message(int socket, struct msghdr *message, int flags)
{
	struct rsocket *rs = rs_get(socket);
	struct sockaddr_storage from = { 0 };
	struct rs_pieces to;
	ssize_t result;
	bool cut = false;
	int code;

	if (!rs)
		return -1;
	code = gather(&to, message->msg_iov, message->msg_iovlen);
	if (!code && (flags & ~RECEIVE_FLAGS))
		code = EOPNOTSUPP;
	if (code)
		result = RS_ERROR(code);
	else if (rs->datagrams)
		result = rs_datagram_receive(rs, &to, flags, &from, &cut);
	else
		result = rs_stream_receive(rs, &to, flags);
	message->msg_controllen = 0;
	message->msg_flags = cut ? MSG_TRUNC : 0;
	if (result >= 0 && rs->datagrams)
		rs_put_address((struct sockaddr *)&from, rs->domain, message->msg_name,
			       &message->msg_namelen);
	else
		message->msg_namelen = 0;
	rs_put(rs);
	return result;
}

ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	return send_message(socket, msg, flags);
}

ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
		const struct sockaddr *dest_addr, socklen_t addrlen)
{
	struct iovec piece = { (void *)(uintptr_t)buf, len };
	struct msghdr message = { .msg_name = (void *)(uintptr_t)dest_addr,
				  .msg_namelen = addrlen,
				  .msg_iov = &piece,
				  .msg_iovlen = 1 };

	return send_message(socket, &message, flags);
}

ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return rsendto(socket, buf, len, flags, NULL, 0);
}

ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return rsendto(socket, buf, count, 0, NULL, 0);
}

ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)iov,
				  .msg_iovlen = (size_t)iovcnt };

	return iovcnt < 0 ? RS_ERROR(EINVAL) : send_message(socket, &message, 0);
}

ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	return receive_message(socket, msg, flags);
}

ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
		  socklen_t *addrlen)
{
	struct iovec piece = { buf, len };
	struct msghdr message = { .msg_name = src_addr,
				  .msg_namelen = src_addr && addrlen ? *addrlen : 0,
				  .msg_iov = &piece,
				  .msg_iovlen = 1 };
	ssize_t result = receive_message(socket, &message, flags);

	if (result >= 0 && src_addr && addrlen)
		*addrlen = message.msg_namelen;
	return result;
}

ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return rrecvfrom(socket, buf, len, flags, NULL, NULL);
}

ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecvfrom(socket, buf, count, 0, NULL, NULL);
}

ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)iov,
				  .msg_iovlen = (size_t)iovcnt };

	return iovcnt < 0 ? RS_ERROR(EINVAL) : receive_message(socket, &message, 0);
}
