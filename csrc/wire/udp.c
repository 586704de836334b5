/* SPDX-License-Identifier: BSD-3-Clause
 * The medium of UDP sockets: one for each process and one for the keeper, all bound to our address
 * and port 4791 (group.c).  They are unconnected and do not fragment, so that the identification
 * is 0 in all that they send (ip(7), IP_PMTUDISC_DO), which the ICRC covers. */
#define _GNU_SOURCE
#include "base/explain.h"
#include "wire/keeper_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/udp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define RECEIVE_BYTES (4 << 20)
#define PORT_TICK_NS 5000000
#define PORT_PATIENCE_NS UINT64_C(2000000000)
#define BURST 64      /* packets that are taken before other files are looked at */
#define LEFT_MAX 4096 /* packets that are taken of a process that has ended */

/* --- sockets ------------------------------------------------------------------------- */

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

static int options(int fd, bool ipv4)
{
	/* More than the system's limit if we may. */
	if (set(fd, SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES))
		(void)set(fd, SOL_SOCKET, SO_RCVBUF, RECEIVE_BYTES);
	if (set(fd, SOL_SOCKET, SO_SNDBUFFORCE, RECEIVE_BYTES))
		(void)set(fd, SOL_SOCKET, SO_SNDBUF, RECEIVE_BYTES);
	if (ipv4)
		return set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) ||
		       set(fd, IPPROTO_IP, IP_RECVTOS, 1);
	/* Adapters send without a checksum. */
	return set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) ||
	       set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) ||
	       set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1) ||
	       set(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
}

/* A socket bound to our address and *port*, one of several if *shared*; or -errno. */
static int make_socket(const struct nupa_keeper *keeper, uint16_t port, bool shared)
{
	union nupa_keeper_address from;
	int fd, error;

	nupa_keeper_address(keeper->local, port, &from);
	fd = socket(from.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (options(fd, keeper->ipv4) || (shared && set(fd, SOL_SOCKET, SO_REUSEPORT, 1)) ||
	    bind(fd, &from.any, nupa_keeper_address_bytes(&from))) {
		error = -errno;
		close(fd);
		return error;
	}
	return fd;
}

/* --- a packet ------------------------------------------------------------------------ */

static uint8_t class_of(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		int class;

		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
			return *(uint8_t *)CMSG_DATA(c);
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
			memcpy(&class, CMSG_DATA(c), sizeof(class));
			return (uint8_t) class;
		}
	}
	return 0;
}

/* Takes one packet; false: there is none. */
static bool take(struct nupa_keeper *keeper, int fd)
{
	uint8_t bytes[NUPA_WIRE_PACKET_MAX_BYTES];
	union nupa_keeper_address from;
	struct iovec piece = { bytes, sizeof(bytes) };
	_Alignas(struct cmsghdr) uint8_t control[128];
	struct msghdr msg = { .msg_name = &from,
			      .msg_namelen = sizeof(from),
			      .msg_iov = &piece,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct nupa_keeper_packet packet = { .bytes = bytes };
	const ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);

	if (n < 0)
		return errno == EINTR;
	if (!nupa_keeper_gid(&from, packet.path.src, &packet.path.src_port))
		return true;
	packet.n = msg.msg_flags & MSG_TRUNC ? 0 : (uint32_t)n;
	packet.path.tos = class_of(&msg);
	packet.path.ttl = 64;
	memcpy(packet.path.dst, keeper->local, 16);
	nupa_keeper_forward(keeper, &packet, NULL);
	return true;
}

/* --- processes ----------------------------------------------------------------------- */

static int join(struct nupa_keeper *keeper, struct nupa_member *member,
		int sockets[NUPA_MEDIUM_SOCKETS_MAX])
{
	int fd, error;

	(void)nupa_group_tick(keeper);
	if (keeper->n_group > NUPA_KEEPER_MEMBERS_MAX)
		return -EUSERS;
	fd = make_socket(keeper, NUPA_WIRE_UDP_PORT, true);
	if (fd < 0)
		return fd;
	sockets[0] = dup(fd);
	if (sockets[0] < 0) {
		error = -errno;
		close(fd);
		return error;
	}
	member->udp = fd;
	nupa_group_add(keeper, member, fd);
	error = nupa_steer(keeper);
	return error ? error : 1;
}

/* Its socket is one of the group no more.  Packets that the process has not read are ours. */
static void leave(struct nupa_keeper *keeper, struct nupa_member *member)
{
	if (member->udp < 0)
		return;
	nupa_group_leave(keeper, member);
	for (uint32_t i = 0; i < LEFT_MAX && take(keeper, member->udp); i++)
		;
	close(member->udp);
	member->udp = -1;
	nupa_group_left(keeper);
}

/* --- receiving ----------------------------------------------------------------------- */

static void arrived(struct nupa_keeper *keeper, struct nupa_keeper_source *source, uint32_t events)
{
	(void)events;
	for (uint32_t i = 0; i < BURST && take(keeper, source->fd); i++)
		;
}

/* ip(7), IP_RECVERR: the network says that a probe did not get there. */
static void refused(struct nupa_keeper *keeper, struct nupa_keeper_source *source, uint32_t events)
{
	uint8_t bytes[256];

	(void)events;
	for (uint32_t i = 0; i < BURST; i++) {
		union nupa_keeper_address to;
		struct iovec piece = { bytes, sizeof(bytes) };
		_Alignas(struct cmsghdr) uint8_t control[512];
		struct msghdr msg = { .msg_name = &to,
				      .msg_namelen = sizeof(to),
				      .msg_iov = &piece,
				      .msg_iovlen = 1,
				      .msg_control = control,
				      .msg_controllen = sizeof(control) };
		struct nupa_kept *wire;
		uint8_t gid[16];
		uint16_t port;

		if (recvmsg(source->fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			break;
		wire = nupa_keeper_gid(&to, gid, &port) ? nupa_keeper_wire_to(keeper, gid) : NULL;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); wire && c; c = CMSG_NXTHDR(&msg, c)) {
			struct sock_extended_err error;

			if (c->cmsg_len < CMSG_LEN(sizeof(error)) ||
			    !((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
			      (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR)))
				continue;
			memcpy(&error, CMSG_DATA(c), sizeof(error));
			nupa_probe_refused(wire, (int)error.ee_errno, nupa_clock_ns());
		}
	}
	/* Its pending error, and packets that somebody sends to that port. */
	while (recv(source->fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_TRUNC) >= 0)
		;
}

/* --- the medium ---------------------------------------------------------------------- */

static int refuse_address(const struct nupa_keeper *keeper, int error, char *why, size_t why_bytes)
{
	char text[INET6_ADDRSTRLEN] = "";

	inet_ntop(keeper->ipv4 ? AF_INET : AF_INET6, keeper->local + (keeper->ipv4 ? 12 : 0), text,
		  sizeof(text));
	if (error == -EADDRINUSE)
		return nupa_explain(error, why, why_bytes,
				    "UDP port 4791 of %s is in use: by a wire of another fabric, "
				    "by a stopped program of a wire whose keeper has died (`ss "
				    "-aunp`), or by the kernel's RoCE (`rdma link`: rxe or an "
				    "adapter); end it, or choose another address of this machine "
				    "with --listen",
				    text);
	if (error == -EADDRNOTAVAIL)
		return nupa_explain(error, why, why_bytes,
				    "%s is no address of this machine: `ip addr` lists them, and "
				    "--listen takes one",
				    text);
	return nupa_explain(error, why, why_bytes, "cannot bind UDP port 4791 of %s: %s%s", text,
			    strerror(-error), nupa_remedy(-error));
}

/* Programs of a keeper that has died close their sockets as soon as they know of its death. */
static int await_port(const struct nupa_keeper *keeper)
{
	const struct timespec tick = { .tv_nsec = PORT_TICK_NS };
	const uint64_t end_ns = nupa_clock_ns() + PORT_PATIENCE_NS;
	int fd;

	while ((fd = make_socket(keeper, NUPA_WIRE_UDP_PORT, false)) == -EADDRINUSE &&
	       nupa_clock_ns() < end_ns)
		nanosleep(&tick, NULL);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Sockets of one user may share a port, also those of two keepers, whose programs would undo each
 * other: so the address is claimed by a name that is this network namespace's, and asked for
 * without sharing first. */
static int claim(struct nupa_keeper *keeper)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	const int text = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "nupa-wire-");
	size_t at = (size_t)text + 1;

	for (uint32_t i = 0; i < 16; i++)
		at += (size_t)snprintf(name.sun_path + at, sizeof(name.sun_path) - at, "%02x",
				       keeper->local[i]);
	keeper->claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (keeper->claim < 0 || bind(keeper->claim, (struct sockaddr *)&name,
				      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at)))
		return -errno;
	return await_port(keeper);
}

static void close_sockets(struct nupa_keeper *keeper)
{
	nupa_keeper_unwatch(keeper, &keeper->udp);
	nupa_keeper_unwatch(keeper, &keeper->errors);
	if (keeper->claim >= 0)
		close(keeper->claim);
	keeper->claim = -1;
	keeper->n_group = 0;
}

static int open_errors(struct nupa_keeper *keeper)
{
	union nupa_keeper_address from;
	socklen_t bytes = sizeof(from);
	uint8_t gid[16];
	int fd = make_socket(keeper, 0, false);

	if (fd < 0)
		return fd;
	keeper->errors = (struct nupa_keeper_source){ .fd = fd, .ready = refused };
	if (getsockname(fd, &from.any, &bytes) ||
	    !nupa_keeper_gid(&from, gid, &keeper->errors_port) ||
	    (keeper->ipv4 ? set(fd, IPPROTO_IP, IP_RECVERR, 1)
			  : set(fd, IPPROTO_IPV6, IPV6_RECVERR, 1)))
		return -errno;
	return nupa_keeper_watch(keeper, &keeper->errors);
}

static int open_sockets(struct nupa_keeper *keeper)
{
	int error = claim(keeper), fd;

	if (error)
		return error;
	fd = make_socket(keeper, NUPA_WIRE_UDP_PORT, true);
	if (fd < 0)
		return fd;
	keeper->udp = (struct nupa_keeper_source){ .fd = fd, .ready = arrived };
	nupa_group_add(keeper, NULL, fd);
	error = nupa_keeper_watch(keeper, &keeper->udp);
	return error ? error : open_errors(keeper);
}

static int open_udp(struct nupa_keeper *keeper, struct nupa_kept *wire, const char *guest,
		    char *why, size_t why_bytes)
{
	int error;

	(void)wire;
	(void)guest;
	if (keeper->n_group)
		return 0;
	error = open_sockets(keeper);
	if (!error)
		return 0;
	close_sockets(keeper);
	return refuse_address(keeper, error, why, why_bytes);
}

/* The sockets go with the last wire. */
static void close_udp(struct nupa_keeper *keeper, struct nupa_kept *wire)
{
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++)
		if (keeper->wires[i] && keeper->wires[i] != wire &&
		    !keeper->wires[i]->medium->relays)
			return;
	close_sockets(keeper);
}

static int send_udp(struct nupa_keeper *keeper, struct nupa_kept *wire,
		    const struct nupa_roce_path *path, const struct iovec *packet, int n)
{
	struct msghdr msg = { .msg_name = &wire->to,
			      .msg_namelen = nupa_keeper_address_bytes(&wire->to),
			      .msg_iov = (struct iovec *)(uintptr_t)packet,
			      .msg_iovlen = (size_t)n };
	const int fd = path->src_port == NUPA_WIRE_UDP_PORT ? keeper->udp.fd : keeper->errors.fd;

	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

const struct nupa_medium nupa_medium_udp = {
	.open = open_udp,
	.close = close_udp,
	.join = join,
	.leave = leave,
	.send = send_udp,
};

const struct nupa_medium *nupa_medium_of(uint32_t medium)
{
	static const struct nupa_medium *const media[NUPA_WIRE_MEDIA] = {
		[NUPA_WIRE_UDP] = &nupa_medium_udp,
		[NUPA_WIRE_RAW] = &nupa_medium_raw,
		[NUPA_WIRE_FRAMES] = &nupa_medium_frames,
	};

	return medium < NUPA_WIRE_MEDIA ? media[medium] : NULL;
}
