/* SPDX-License-Identifier: BSD-3-Clause
 * Two calls that rdma-core v44's librspreload leaves to libc and a later one does not, made of
 * those that it knows.  Preloaded before it. */
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>

int accept4(int fd, struct sockaddr *addr, socklen_t *length, int flags)
{
	int connection = accept(fd, addr, length);

	if (connection >= 0 && (flags & SOCK_NONBLOCK))
		(fcntl)(connection, F_SETFL, O_NONBLOCK);
	return connection;
}

int fcntl64(int fd, int command, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	return (fcntl)(fd, command, argument);
}
