/* SPDX-License-Identifier: BSD-3-Clause
 * Processes at a keeper's socket (segment/port_protocol.h): hello, welcome, hang-up.  A process is
 * trusted as far as its user and its slot are its own. */
#define _GNU_SOURCE
#include "segment/slot/slot.h"
#include "wire/keeper_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64
#define HELLO_NS UINT64_C(2000000000)
#define BURST 64

/* --- answers ------------------------------------------------------------------------- */

static void welcome(const struct nupa_member *member, int status, const int *sockets, int n)
{
	struct nupa_wire_welcome words = { .magic = NUPA_WIRE_MAGIC,
					   .version = NUPA_WIRE_VERSION,
					   .status = (uint32_t)-status,
					   .index = member->wire->index };
	union {
		struct cmsghdr header;
		uint8_t bytes[CMSG_SPACE(NUPA_MEDIUM_SOCKETS_MAX * sizeof(int))];
	} control = { 0 };
	struct iovec piece = { &words, sizeof(words) };
	struct msghdr msg = { .msg_iov = &piece, .msg_iovlen = 1 };

	if (n > 0) {
		const size_t bytes = (size_t)n * sizeof(int);

		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(&control.header), sockets, bytes);
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(bytes);
	}
	(void)sendmsg(member->source.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- hello --------------------------------------------------------------------------- */

/* Whether the slot is the process's: 0 or -errno. */
static int check_hello(const struct nupa_member *member, const struct nupa_wire_hello *hello)
{
	const struct nupa_fabric *fabric = member->wire->keeper->fabric;
	uint64_t claim;

	if (hello->version != NUPA_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (hello->slot == 0 || hello->slot >= fabric->geometry.n_slots)
		return -EINVAL;
	claim = nupa_slot_claim(&fabric->slots[hello->slot]);
	if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE || NUPA_CLAIM_EPOCH(claim) != hello->epoch)
		return -ESTALE;
	/* Pids of another namespace mean nothing here. */
	if (!nupa_slot_foreign(fabric, hello->slot, claim) && NUPA_CLAIM_PID(claim) != member->pid)
		return -EACCES;
	return 0;
}

static int admit(struct nupa_keeper *keeper, struct nupa_member *member,
		 const struct nupa_wire_hello *hello)
{
	int sockets[NUPA_MEDIUM_SOCKETS_MAX], n;
	struct nupa_member *old;
	const int error = check_hello(member, hello);

	if (error)
		return error;
	old = nupa_member_of_slot(keeper, member->wire, hello->slot);
	if (old && old->epoch == hello->epoch)
		return -EEXIST;
	if (old) /* of a former owner, whose hang-up we have not seen yet */
		nupa_member_end(keeper, old);
	member->slot = hello->slot;
	member->epoch = hello->epoch;
	n = member->wire->medium->join(keeper, member, sockets);
	if (n < 0)
		return n;
	welcome(member, 0, sockets, n);
	for (int i = 0; i < n; i++)
		close(sockets[i]);
	return 0;
}

/* False: its connection has ended. */
static bool take_hello(struct nupa_keeper *keeper, struct nupa_member *member)
{
	union {
		struct nupa_wire_hello hello;
		char bytes[NUPA_KEEPER_REQUEST_BYTES];
	} came = { 0 };
	const ssize_t n = recv(member->source.fd, came.bytes, sizeof(came.bytes) - 1, MSG_DONTWAIT);
	int error = -EPROTO;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n >= 4 && came.hello.magic == NUPA_WIRE_REQUEST_MAGIC && keeper->request_fd < 0) {
		memcpy(keeper->request, came.bytes + 4, (size_t)n - 4);
		keeper->request[n - 4] = 0;
		keeper->request_fd = dup(member->source.fd);
		return false;
	}
	if (n == (ssize_t)sizeof(came.hello) && came.hello.magic == NUPA_WIRE_MAGIC)
		error = admit(keeper, member, &came.hello);
	if (error && n > 0)
		welcome(member, error, NULL, 0);
	return !error;
}

/* --- packets ------------------------------------------------------------------------- */

/* False: its connection has ended. */
static bool take_packet(struct nupa_keeper *keeper, struct nupa_member *member)
{
	struct {
		struct nupa_wire_envelope envelope;
		uint8_t bytes[NUPA_WIRE_PACKET_MAX_BYTES + 1];
	} came;
	struct nupa_keeper_packet packet = { .bytes = came.bytes };
	const ssize_t n = recv(member->source.fd, &came, sizeof(came), MSG_DONTWAIT);

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	if ((size_t)n < sizeof(came.envelope) ||
	    came.envelope.bytes != (size_t)n - sizeof(came.envelope) ||
	    came.envelope.bytes > NUPA_WIRE_PACKET_MAX_BYTES)
		return false; /* it does not speak our language */
	memcpy(packet.path.src, came.envelope.src, 16);
	memcpy(packet.path.dst, came.envelope.dst, 16);
	packet.path.src_port = came.envelope.src_port;
	packet.path.identification = came.envelope.identification;
	packet.path.tos = came.envelope.tos;
	packet.path.ttl = came.envelope.ttl;
	packet.identified = came.envelope.flags & NUPA_WIRE_IDENTIFIED;
	packet.n = came.envelope.bytes;
	nupa_keeper_forward(keeper, &packet, member);
	return true;
}

/* --- connections --------------------------------------------------------------------- */

static void spoke(struct nupa_keeper *keeper, struct nupa_keeper_source *source, uint32_t events)
{
	struct nupa_member *member = container_of(source, struct nupa_member, source);
	bool goes_on = true;

	if (!member->slot)
		goes_on = take_hello(keeper, member);
	else
		for (uint32_t i = 0; i < BURST && goes_on; i++) {
			char byte;

			if (recv(source->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
			    errno == EAGAIN)
				break;
			goes_on = take_packet(keeper, member);
		}
	if (!goes_on || events & (EPOLLERR | EPOLLHUP))
		nupa_member_end(keeper, member);
}

static bool is_ours(int fd, uint32_t *pid)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) || bytes != sizeof(peer))
		return false;
	*pid = (uint32_t)peer.pid;
	return peer.uid == geteuid() || peer.uid == 0;
}

static void refuse(struct nupa_kept *wire, int fd, int error)
{
	const struct nupa_member nobody = { .source.fd = fd, .wire = wire };

	welcome(&nobody, error, NULL, 0);
	close(fd);
}

static void came(struct nupa_keeper *keeper, struct nupa_keeper_source *source, uint32_t events)
{
	struct nupa_kept *wire = container_of(source, struct nupa_kept, listener);
	const int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct nupa_member *member;
	uint32_t pid;

	(void)events;
	if (fd < 0)
		return;
	if (!is_ours(fd, &pid)) {
		refuse(wire, fd, -EACCES);
		return;
	}
	member = keeper->n_members < NUPA_KEEPER_MEMBERS_MAX ? calloc(1, sizeof(*member)) : NULL;
	if (!member) {
		refuse(wire, fd, -EUSERS);
		return;
	}
	*member = (struct nupa_member){ .source = { .fd = fd, .ready = spoke },
					.wire = wire,
					.since_ns = nupa_clock_ns(),
					.udp = -1,
					.pid = pid };
	nupa_notes_join(member);
	if (nupa_keeper_watch(keeper, &member->source)) {
		refuse(wire, fd, -ENOMEM);
		free(member);
		return;
	}
	keeper->members[keeper->n_members++] = member;
}

void nupa_member_end(struct nupa_keeper *keeper, struct nupa_member *member)
{
	for (uint32_t i = 0; i < keeper->n_members; i++)
		if (keeper->members[i] == member)
			keeper->members[i] = keeper->members[--keeper->n_members];
	if (member->slot)
		member->wire->medium->leave(keeper, member);
	nupa_notes_leave(member);
	nupa_keeper_unwatch(keeper, &member->source);
	free(member);
}

void nupa_members_end(struct nupa_keeper *keeper, const struct nupa_kept *wire)
{
	for (uint32_t i = keeper->n_members; i-- > 0;)
		if (keeper->members[i]->wire == wire)
			nupa_member_end(keeper, keeper->members[i]);
}

void nupa_members_expire(struct nupa_keeper *keeper, uint64_t now_ns)
{
	for (uint32_t i = keeper->n_members; i-- > 0;)
		if (!keeper->members[i]->slot && now_ns - keeper->members[i]->since_ns > HELLO_NS)
			nupa_member_end(keeper, keeper->members[i]);
}

struct nupa_member *nupa_member_of_slot(struct nupa_keeper *keeper, const struct nupa_kept *wire,
					uint32_t slot)
{
	for (uint32_t i = 0; i < keeper->n_members; i++)
		if (keeper->members[i]->wire == wire && keeper->members[i]->slot == slot)
			return keeper->members[i];
	return NULL;
}

/* What a dead keeper left is in the way. */
static int make_way(const char *path)
{
	struct stat status;

	if (lstat(path, &status))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(status.st_mode))
		return -EEXIST;
	return unlink(path) ? -errno : 0;
}

int nupa_member_listen(struct nupa_kept *wire)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = fd < 0 ? -errno : make_way(wire->path);

	memcpy(name.sun_path, wire->path, sizeof(name.sun_path));
	/* Nobody connects before it listens. */
	if (!error && bind(fd, (struct sockaddr *)&name, sizeof(name)))
		error = -errno;
	if (!error && (chmod(wire->path, 0600) || listen(fd, BACKLOG)))
		error = -errno;
	if (error) {
		if (fd >= 0)
			close(fd);
		return error;
	}
	wire->listener = (struct nupa_keeper_source){ .fd = fd, .ready = came };
	error = nupa_keeper_watch(wire->keeper, &wire->listener);
	return error;
}
