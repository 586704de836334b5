/* SPDX-License-Identifier: BSD-3-Clause
 * MADs through sockets: short ones as they are, long ones in a memfd that goes with the message. */
#define _GNU_SOURCE
#include "shim/umad/umad.h"

#include "base/rlimit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

static int make_memfd(const uint8_t *data, size_t bytes)
{
	const int fd = memfd_create("nupa-mad", MFD_CLOEXEC);
	size_t at = 0;

	if (fd < 0)
		return -errno;
	while (at < bytes && nupa_limit_allows_file(bytes)) {
		const ssize_t written = pwrite(fd, data + at, bytes - at, (off_t)at);

		if (written <= 0)
			break;
		at += (size_t)written;
	}
	if (at == bytes)
		return fd;
	close(fd);
	return -ENOMEM;
}

int nupa_umad_put(int fd, const struct nupa_umad_message *message, const uint8_t *data,
		  const void *to, size_t to_bytes)
{
	struct nupa_umad_message head = *message;
	struct iovec parts[] = { { &head, sizeof(head) }, { (void *)(uintptr_t)data, head.bytes } };
	struct msghdr mail = { .msg_name = (void *)(uintptr_t)to,
			       .msg_namelen = (socklen_t)to_bytes,
			       .msg_iov = parts,
			       .msg_iovlen = 2 };
	union control control = { 0 };
	int memfd = -1, error = 0;

	head.long_ = head.bytes > NUPA_UMAD_INLINE_BYTES;
	if (head.long_) {
		memfd = make_memfd(data, head.bytes);
		if (memfd < 0)
			return memfd;
		mail.msg_iovlen = 1;
		mail.msg_control = &control;
		mail.msg_controllen = sizeof(control);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &memfd, sizeof(memfd));
	}
	/* Past the wrapper of the shim: names of sockets are none of hosts. */
	if (syscall(SYS_sendmsg, fd, &mail, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		error = -errno;
	if (memfd >= 0)
		close(memfd);
	return error;
}

static int read_all(int fd, uint8_t *to, size_t bytes)
{
	struct stat st;

	if (fstat(fd, &st) || (uint64_t)st.st_size < bytes)
		return -EPROTO;
	for (size_t at = 0; at < bytes;) {
		const ssize_t got = pread(fd, to + at, bytes - at, (off_t)at);

		if (got <= 0)
			return -EPROTO;
		at += (size_t)got;
	}
	return 0;
}

int nupa_umad_take(int fd, int flags, struct nupa_umad_message *message, uint8_t **data)
{
	uint8_t inline_[NUPA_UMAD_INLINE_BYTES];
	struct iovec parts[] = { { message, sizeof(*message) }, { inline_, sizeof(inline_) } };
	union control control = { 0 };
	struct msghdr mail = { .msg_iov = parts,
			       .msg_iovlen = 2,
			       .msg_control = &control,
			       .msg_controllen = sizeof(control) };
	const ssize_t got = syscall(SYS_recvmsg, fd, &mail, flags | MSG_CMSG_CLOEXEC);
	int memfd = -1, error = 0;

	*data = NULL;
	if (got < 0)
		return -errno;
	if (mail.msg_controllen >= CMSG_LEN(sizeof(int)) && control.head.cmsg_type == SCM_RIGHTS)
		memcpy(&memfd, CMSG_DATA(&control.head), sizeof(memfd));
	if (!got)
		error = -EPIPE; /* the other end is gone */
	else if ((size_t)got < sizeof(*message) || message->bytes > NUPA_UMAD_MAX_BYTES ||
		 (message->long_ ? memfd < 0 : (size_t)got != sizeof(*message) + message->bytes))
		error = -EPROTO;
	else
		/* A whole MAD at least, for those who look at its header. */
		*data =
		    calloc(1, message->bytes < NUPA_MAD_BYTES ? NUPA_MAD_BYTES : message->bytes);
	if (!error && !*data)
		error = -ENOMEM;
	if (!error && message->long_)
		error = read_all(memfd, *data, message->bytes);
	else if (!error)
		memcpy(*data, inline_, message->bytes);
	if (memfd >= 0)
		close(memfd);
	if (error) {
		free(*data);
		*data = NULL;
	}
	return error;
}
