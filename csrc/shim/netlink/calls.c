/* SPDX-License-Identifier: BSD-3-Clause
 * The calls of libc on sockets of NETLINK_RDMA, as netlink(7) has them.  Those with addresses are
 * wrapped in sockets.c, which asks here.  Other descriptors cost a look at a word, and, in a
 * program that has ever opened such a socket, a system call.
 *
 * Not wrapped: readv and writev; no user of libmnl, libnl or Python needs them. */
#define _GNU_SOURCE
/* The symbols themselves are defined here, not what headers make of their names. */
#undef _FORTIFY_SOURCE
#include "shim/call.h"
#include "shim/netlink/netlink.h"
#include "shim/umad.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Symbols imported by binaries that were compiled with checks. */
ssize_t __read_chk(int fd, void *to, size_t bytes, size_t room);
ssize_t __recv_chk(int fd, void *to, size_t bytes, size_t room, int flags);

static int fail(int error)
{
	errno = error;
	return -1;
}

/* --- the socket's names and options ------------------------------------------------------ */

static int open_socket(int type)
{
	const int flags = type & (SOCK_NONBLOCK | SOCK_CLOEXEC);

	if ((type ^ flags) != SOCK_RAW && (type ^ flags) != SOCK_DGRAM)
		return fail(ESOCKTNOSUPPORT);
	return nupa_netlink_open(type ^ flags, flags);
}

/* 0, or an errno: an address of netlink. */
static int take_address(const struct sockaddr *from, socklen_t bytes, struct sockaddr_nl *to)
{
	if (!from || bytes < sizeof(*to))
		return EINVAL;
	memcpy(to, from, sizeof(*to));
	return to->nl_family == AF_NETLINK ? 0 : EINVAL;
}

void nupa_netlink_name(uint32_t port_id, struct sockaddr *to, socklen_t *bytes)
{
	const struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_pid = port_id };

	if (!to || !bytes)
		return;
	memcpy(to, &address, *bytes < sizeof(address) ? *bytes : sizeof(address));
	*bytes = sizeof(address);
}

int nupa_netlink_bind_to(int fd, const struct sockaddr *to, socklen_t bytes)
{
	const uint32_t own = nupa_netlink_port_id(fd);
	struct sockaddr_nl address;
	int error = take_address(to, bytes, &address);

	if (!error && own && address.nl_pid != own)
		error = EINVAL;
	if (!error && !own)
		error = -nupa_netlink_bind(fd, address.nl_pid);
	return error ? fail(error) : 0;
}

/* To the kernel; there is no other partner. */
int nupa_netlink_connect(int fd, const struct sockaddr *to, socklen_t bytes)
{
	struct sockaddr_nl address;
	int error = take_address(to, bytes, &address);

	if (!error && address.nl_pid)
		error = EPERM;
	if (!error && !nupa_netlink_port_id(fd))
		error = -nupa_netlink_bind(fd, 0);
	return error ? fail(error) : 0;
}

/* The options that our own use of the socket depends on are left as they are. */
static bool keeps_option(int level, int name)
{
	return level == SOL_NETLINK ||
	       (level == SOL_SOCKET &&
		(name == SO_RCVLOWAT || name == SO_SNDBUF || name == SO_SNDBUFFORCE));
}

static int known_option(int fd, int level, int name)
{
	if (level == SOL_NETLINK)
		return 0;
	if (level != SOL_SOCKET)
		return -1;
	switch (name) {
	case SO_DOMAIN:
		return AF_NETLINK;
	case SO_TYPE:
		return nupa_netlink_type(fd);
	case SO_PROTOCOL:
		return NETLINK_RDMA;
	case SO_RCVLOWAT:
		return 1;
	default:
		return -1;
	}
}

NUPA_SHIM_WRAPPER int socket(int domain, int type, int protocol)
{
	const char *fabric, *host;
	CALL(socket);

	if (__builtin_expect(domain == AF_NETLINK && protocol == NETLINK_RDMA, 0) &&
	    nupa_shim_place(&fabric, &host))
		return open_socket(type);
	return next(domain, type, protocol);
}

NUPA_SHIM_WRAPPER int setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
	CALL(setsockopt);

	if (!nupa_netlink_is_ours(fd) || !keeps_option(level, name))
		return next(fd, level, name, value, bytes);
	return bytes < sizeof(int) ? fail(EINVAL) : 0;
}

NUPA_SHIM_WRAPPER int getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
	int known;
	CALL(getsockopt);

	if (!nupa_netlink_is_ours(fd) || (known = known_option(fd, level, name)) < 0)
		return next(fd, level, name, value, bytes);
	if (*bytes > sizeof(known))
		*bytes = sizeof(known);
	memcpy(value, &known, *bytes);
	return 0;
}

/* --- sending ------------------------------------------------------------------------------- */

ssize_t nupa_netlink_send(int fd, const struct iovec *from, size_t n, const struct sockaddr *to,
			  socklen_t to_bytes)
{
	uint8_t data[NUPA_NETLINK_REQUEST_BYTES];
	struct sockaddr_nl address;
	size_t bytes = 0;
	int error = to ? take_address(to, to_bytes, &address) : 0;

	if (!error && to && address.nl_pid)
		error = ECONNREFUSED;
	for (size_t i = 0; !error && i < n; i++) {
		if (from[i].iov_len > sizeof(data) - bytes)
			return fail(EMSGSIZE);
		if (from[i].iov_len)
			memcpy(data + bytes, from[i].iov_base, from[i].iov_len);
		bytes += from[i].iov_len;
	}
	if (!error && !nupa_netlink_port_id(fd))
		error = -nupa_netlink_bind(fd, 0);
	if (!error)
		error = -nupa_netlink_handle(fd, nupa_netlink_port_id(fd), data, bytes);
	return error ? fail(error) : (ssize_t)bytes;
}

NUPA_SHIM_WRAPPER ssize_t send(int fd, const void *from, size_t bytes, int flags)
{
	CALL(send);

	if (nupa_netlink_is_ours(fd))
		return nupa_netlink_send(fd, &(struct iovec){ (void *)(uintptr_t)from, bytes }, 1,
					 NULL, 0);
	return next(fd, from, bytes, flags);
}

NUPA_SHIM_WRAPPER ssize_t write(int fd, const void *from, size_t bytes)
{
	CALL(write);

	if (nupa_umad_is_ours(fd))
		return nupa_umad_write(fd, from, bytes);
	if (nupa_netlink_is_ours(fd))
		return nupa_netlink_send(fd, &(struct iovec){ (void *)(uintptr_t)from, bytes }, 1,
					 NULL, 0);
	return next(fd, from, bytes);
}

/* --- receiving ----------------------------------------------------------------------------- */

/* *cut*: MSG_TRUNC, if the message is longer than there is room. */
static ssize_t receive(int fd, const struct iovec *to, size_t n, int flags, int *cut)
{
	uint8_t data[NUPA_NETLINK_RECEIVE_BYTES];
	const ssize_t got = nupa_netlink_receive(fd, flags & ~MSG_TRUNC, data);
	size_t copied = 0;

	if (got < 0)
		return -1;
	for (size_t i = 0; i < n && copied < (size_t)got; i++) {
		const size_t left = (size_t)got - copied;
		const size_t bytes = to[i].iov_len < left ? to[i].iov_len : left;

		if (bytes)
			memcpy(to[i].iov_base, data + copied, bytes);
		copied += bytes;
	}
	*cut = copied < (size_t)got ? MSG_TRUNC : 0;
	return flags & MSG_TRUNC ? got : (ssize_t)copied;
}

/* From the kernel, whose port id is 0. */
ssize_t nupa_netlink_receive_from(int fd, void *to, size_t bytes, int flags, struct sockaddr *from,
				  socklen_t *from_bytes)
{
	int cut;
	const ssize_t got = receive(fd, &(struct iovec){ to, bytes }, 1, flags, &cut);

	if (got >= 0)
		nupa_netlink_name(0, from, from_bytes);
	return got;
}

ssize_t nupa_netlink_receive_message(int fd, struct msghdr *message, int flags)
{
	int cut;
	const ssize_t got = receive(fd, message->msg_iov, message->msg_iovlen, flags, &cut);

	if (got < 0)
		return -1;
	nupa_netlink_name(0, message->msg_name, &message->msg_namelen);
	message->msg_controllen = 0;
	message->msg_flags = cut;
	return got;
}

NUPA_SHIM_WRAPPER ssize_t recv(int fd, void *to, size_t bytes, int flags)
{
	CALL(recv);

	if (nupa_netlink_is_ours(fd))
		return nupa_netlink_receive_from(fd, to, bytes, flags, NULL, NULL);
	return next(fd, to, bytes, flags);
}

NUPA_SHIM_WRAPPER ssize_t __recv_chk(int fd, void *to, size_t bytes, size_t room, int flags)
{
	CALL(__recv_chk);

	if (nupa_netlink_is_ours(fd) && bytes <= room)
		return nupa_netlink_receive_from(fd, to, bytes, flags, NULL, NULL);
	return next(fd, to, bytes, room, flags);
}

NUPA_SHIM_WRAPPER ssize_t read(int fd, void *to, size_t bytes)
{
	CALL(read);

	if (nupa_umad_is_ours(fd))
		return nupa_umad_read(fd, to, bytes);
	if (nupa_netlink_is_ours(fd))
		return nupa_netlink_receive_from(fd, to, bytes, 0, NULL, NULL);
	return next(fd, to, bytes);
}

NUPA_SHIM_WRAPPER ssize_t __read_chk(int fd, void *to, size_t bytes, size_t room)
{
	CALL(__read_chk);

	if (nupa_umad_is_ours(fd) && bytes <= room)
		return nupa_umad_read(fd, to, bytes);
	if (nupa_netlink_is_ours(fd) && bytes <= room)
		return nupa_netlink_receive_from(fd, to, bytes, 0, NULL, NULL);
	return next(fd, to, bytes, room);
}
