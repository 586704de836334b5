/* SPDX-License-Identifier: BSD-3-Clause
 * A port joins the keeper of its wire, from which it has its sockets. */
#define _GNU_SOURCE
#include "base/hint.h"
#include "engine/wire/wire_internal.h"

#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define RECEIVE_BYTES (4 << 20)

/* The welcome, and the sockets beside it: UDP, packet; 0 or -errno. */
static int take_welcome(struct nupa_wire *wire)
{
	struct nupa_wire_welcome welcome;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec piece = { &welcome, sizeof(welcome) };
	struct msghdr msg = { .msg_iov = &piece,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *header;
	int sockets[2] = { -1, -1 };
	const ssize_t n = recvmsg(wire->keeper, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	if (n < 0)
		return -errno;
	header = CMSG_FIRSTHDR(&msg);
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
	    header->cmsg_len <= CMSG_LEN(sizeof(sockets)))
		memcpy(sockets, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
	wire->udp = sockets[0];
	wire->raw = sockets[1];
	if (n != (ssize_t)sizeof(welcome) || welcome.magic != NUPA_WIRE_MAGIC ||
	    welcome.version != NUPA_WIRE_VERSION)
		return -EPROTO;
	if (welcome.status)
		return welcome.status > 4095 ? -EPROTO : -(int)welcome.status;
	return wire->udp < 0 && !wire->frames ? -EPROTO : 0;
}

/* Says hello: 0, -EAGAIN: so many others ask, or another -errno. */
static int ask(struct nupa_wire *wire)
{
	const struct nupa_engine *engine = wire->engine;
	const struct nupa_wire_hello hello = { .magic = NUPA_WIRE_MAGIC,
					       .version = NUPA_WIRE_VERSION,
					       .slot = engine->slot_index,
					       .epoch = engine->epoch };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, error;

	_Static_assert(sizeof(address.sun_path) >= NUPA_WIRE_SOCKET_BYTES, "a path fits");
	memcpy(address.sun_path, wire->entry->socket, NUPA_WIRE_SOCKET_BYTES);
	address.sun_path[NUPA_WIRE_SOCKET_BYTES - 1] = 0;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) < 0) {
		error = -errno;
		close(fd);
		return error;
	}
	wire->keeper = fd;
	return 0;
}

/* Room for what comes, and several packets in one call. */
static void set_options(struct nupa_wire *wire)
{
	const char *segments = getenv("NUPA_WIRE_SEGMENTS");
	const int on = 1, room = RECEIVE_BYTES;

	if (wire->frames)
		return;
	if (setsockopt(wire->udp, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)))
		(void)setsockopt(wire->udp, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	nupa_wire_say_capable(wire->udp, wire->ipv4);
	/* RAW: the kernel would segment packets before it drops them. */
	(void)setsockopt(wire->udp, SOL_UDP, UDP_GRO, &on, sizeof(on));
	wire->segments = !segments || strcmp(segments, "0") != 0;
}

int nupa_wire_join(struct nupa_wire *wire, int patience_ms)
{
	struct pollfd fds[] = { { .fd = wire->wake, .events = POLLIN }, { .events = POLLIN } };
	uint64_t count;
	int error = wire->keeper < 0 ? ask(wire) : 0;

	if (error && error != -EAGAIN)
		return error;
	fds[1].fd = wire->keeper; /* -1: poll() passes over it */
	if (poll(fds, 2, patience_ms) < 0 && errno != EINTR)
		return -errno;
	if (fds[0].revents)
		(void)!read(wire->wake, &count, sizeof(count));
	error = fds[1].revents ? take_welcome(wire) : -EAGAIN;
	if (error)
		return error;
	set_options(wire);
	nupa_store_release(&wire->joined, true);
	return 0;
}

void nupa_wire_hint(const struct nupa_wire *wire, int error)
{
	nupa_hint("host %s is a wire, whose keeper at %.107s does not let this process send (%s): "
		  "see `nupa show`",
		  wire->engine->fabric->hosts[wire->host].name, wire->entry->socket,
		  strerror(-error));
}
