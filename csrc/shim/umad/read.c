/* SPDX-License-Identifier: BSD-3-Clause
 * The next MAD for the program.  Where its buffer is too short for an RMPP message it gets the
 * first MAD with the length and ENOSPC, and the message stays, as with the kernel. */
#define _GNU_SOURCE
#include "shim/umad/umad.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void copy(uint8_t *to, size_t header_bytes, const struct nupa_umad_message *message,
		 const uint8_t *data, size_t bytes)
{
	memcpy(to, &message->header, header_bytes);
	memcpy(to + header_bytes, data, bytes);
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Without waiting, under the lock: another thread would take it in between. */
static ssize_t take(int fd, size_t header_bytes, uint8_t *to, size_t bytes)
{
	struct nupa_umad_message message;
	uint8_t *data;
	ssize_t rc = nupa_umad_take(fd, MSG_PEEK | MSG_DONTWAIT, &message, &data);
	size_t first;

	if (rc)
		return rc;
	first = smaller(message.bytes, NUPA_MAD_BYTES);
	if (bytes < header_bytes + first) {
		rc = -EINVAL;
	} else if (bytes < header_bytes + message.bytes) {
		copy(to, header_bytes, &message, data, first);
		rc = -ENOSPC;
	} else {
		copy(to, header_bytes, &message, data, message.bytes);
		rc = (ssize_t)(header_bytes + message.bytes);
	}
	free(data);
	if (rc >= 0) {
		(void)nupa_umad_take(fd, MSG_DONTWAIT, &message, &data);
		free(data);
	}
	return rc;
}

ssize_t nupa_umad_read(int fd, void *to, size_t bytes)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	const struct nupa_umad_port *port;
	ssize_t rc;

	for (;;) {
		const int flags = fcntl(fd, F_GETFL);

		nupa_umad_lock();
		port = nupa_umad_port_of(fd);
		rc = port ? take(fd, nupa_umad_header_bytes(port), to, bytes) : -EBADF;
		nupa_umad_unlock();
		if (rc != -EAGAIN || flags & O_NONBLOCK)
			break;
		if (poll(&wait, 1, -1) < 0) {
			rc = -errno;
			break;
		}
	}
	if (rc >= 0)
		return rc;
	errno = (int)-rc;
	return -1;
}
