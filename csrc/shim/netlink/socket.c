/* SPDX-License-Identifier: BSD-3-Clause
 * The socket behind the program's descriptor: a datagram socket of AF_UNIX that is connected to
 * itself.  An answer is sent to it, and so lies in its queue as a message of the kernel would.
 * poll, epoll, dup, fork and close are the kernel's, and nothing is left to close or to forget.
 *
 *   N1  All that is known of a socket is in the socket: that it is ours and its type in
 * SO_RCVLOWAT, which means nothing to datagrams; its port id in its name, which is taken as by
 * netlink itself, once in a network namespace. N2  Only the socket itself can send to it: the
 * kernel rejects others, since it is connected. N3  Messages fill half of its buffer at most, so a
 * rest (request.c) finds room. */
#define _GNU_SOURCE
#include "shim/call.h"
#include "shim/netlink/netlink.h"

#include "base/atomics.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define MARK 0x4e4c5200        /* "NLR", and the type */
#define BUFFER_BYTES (1 << 20) /* or what the system allows */
#define NAME "nupa-rdma-netlink-"
#define NAME_BYTES (sizeof(NAME) - 1)
#define TRIES 64

/* Whether this program, or the one that it was forked from, ever opened one. */
static uint32_t any;

int nupa_netlink_open(int type, int flags)
{
	/* Past our own wrappers. */
	const int fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | flags, 0);
	const int mark = MARK + type, bytes = BUFFER_BYTES;

	if (fd < 0)
		return -1;
	nupa_store_release(&any, 1);
	(void)syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	if (syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark))) {
		const int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

static int option(int fd, int name)
{
	const int saved = errno;
	int value = -1;
	socklen_t bytes = sizeof(value);

	if (syscall(SYS_getsockopt, fd, SOL_SOCKET, name, &value, &bytes))
		value = -1;
	errno = saved;
	return value;
}

int nupa_netlink_type(int fd)
{
	return option(fd, SO_RCVLOWAT) - MARK;
}

bool nupa_netlink_is_ours(int fd)
{
	int type;

	if (__builtin_expect(!nupa_load_relaxed(&any), 1))
		return false;
	type = nupa_netlink_type(fd);
	return (type == SOCK_RAW || type == SOCK_DGRAM) && option(fd, SO_DOMAIN) == AF_UNIX;
}

static socklen_t name_of(uint32_t port_id, struct sockaddr_un *name)
{
	memset(name, 0, sizeof(*name));
	name->sun_family = AF_UNIX;
	/* An abstract one: it begins with 0. */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1,
					    NAME "%08x", port_id));
}

uint32_t nupa_netlink_port_id(int fd)
{
	struct sockaddr_un name = { 0 };
	socklen_t bytes = sizeof(name) - 1;

	if (syscall(SYS_getsockname, fd, &name, &bytes) ||
	    strncmp(name.sun_path + 1, NAME, NAME_BYTES) != 0)
		return 0;
	return (uint32_t)strtoul(name.sun_path + 1 + NAME_BYTES, NULL, 16);
}

static int bind_to(int fd, uint32_t port_id)
{
	struct sockaddr_un name;
	const socklen_t bytes = name_of(port_id, &name);

	if (syscall(SYS_bind, fd, &name, bytes) || syscall(SYS_connect, fd, &name, bytes))
		return -errno;
	/* Others may have sent this in between. */
	while (syscall(SYS_recvfrom, fd, &name, 0, MSG_DONTWAIT, NULL, NULL) >= 0)
		continue;
	return 0;
}

/* As netlink_autobind() has it: the pid, if no socket has that, else a number beyond pids. */
int nupa_netlink_bind(int fd, uint32_t port_id)
{
	uint32_t wanted = port_id ? port_id : (uint32_t)getpid();
	int error;

	for (int i = 0; i < TRIES; i++) {
		error = bind_to(fd, wanted);
		/* Another thread was faster. */
		if (error == -EINVAL && !port_id && nupa_netlink_port_id(fd))
			return 0;
		if (error != -EADDRINUSE || port_id)
			return error;
		if (getrandom(&wanted, sizeof(wanted), GRND_NONBLOCK) < 0)
			wanted = (uint32_t)getpid() + (uint32_t)i;
		wanted |= 0x80000000u;
	}
	return error;
}

int nupa_netlink_push(int fd, const void *data, size_t bytes)
{
	if (syscall(SYS_sendto, fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) < 0)
		return -ENOBUFS;
	return 0;
}

bool nupa_netlink_has_room(int fd)
{
	int queued = 0;

	return ioctl(fd, SIOCOUTQ, &queued) == 0 && queued < option(fd, SO_SNDBUF) / 2;
}

/* A rest that was only looked at is taken out. */
static void take_rest(int fd)
{
	uint8_t data[NUPA_NETLINK_RECEIVE_BYTES];
	const ssize_t got = syscall(SYS_recvfrom, fd, data, sizeof(data), MSG_DONTWAIT, NULL, NULL);

	if (got < 0)
		return; /* another thread was faster */
	if (nupa_netlink_is_rest(data, (size_t)got))
		(void)nupa_netlink_go_on(fd, data, (size_t)got);
	else
		(void)nupa_netlink_push(fd, data, (size_t)got);
}

ssize_t nupa_netlink_receive(int fd, int flags, uint8_t data[NUPA_NETLINK_RECEIVE_BYTES])
{
	CALL(recv); /* libc's: a thread may be cancelled while it waits */

	for (;;) {
		const ssize_t got = next(fd, data, NUPA_NETLINK_RECEIVE_BYTES, flags);

		if (got < 0 || !nupa_netlink_is_rest(data, (size_t)got))
			return got;
		if (flags & MSG_PEEK)
			take_rest(fd);
		else
			(void)nupa_netlink_go_on(fd, data, (size_t)got);
	}
}
