/* SPDX-License-Identifier: BSD-3-Clause
 * The medium RAW: UDP sockets, which send and keep the port, and beside each a packet socket, which
 * receives.  A packet socket shows the IP identification, so that the ICRC is exact.  The keeper
 * opens all of them, with its CAP_NET_RAW; processes need no privilege.
 *
 *   R1  A packet socket has a filter for one slot before it is bound, and nobody can change it: its
 *       process sees no other packets.
 *   R2  UDP sockets of processes drop all that comes.  What the keeper's own one gets and a packet
 *       socket gets, too, the keeper ignores (forward.c). */
#include "base/explain.h"
#include "packet/raw.h"
#include "wire/keeper_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECEIVE_BYTES (4 << 20)
#define BURST 64
#define SLOT_OF_QP1 0u
#define NET(at) ((uint32_t)SKF_NET_OFF + (at))

static int set(int fd, int level, int option, const void *value, size_t bytes)
{
	return setsockopt(fd, level, option, value, (socklen_t)bytes) ? -errno : 0;
}

static int set_filter(int fd, struct sock_filter *code, size_t n)
{
	const struct sock_fprog filter = { (unsigned short)n, code };

	return set(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
}

static uint32_t ipv4_of(const uint8_t gid[16])
{
	uint32_t be;

	memcpy(&be, gid + 12, sizeof(be));
	return ntohl(be);
}

/* R1 */
static int filter_slot(int fd, const struct nupa_kept *wire, uint32_t slot)
{
	const struct {
		uint16_t size;
		uint32_t at, is;
	} wanted[] = {
		{ BPF_W, (uint32_t)SKF_AD_OFF + SKF_AD_PKTTYPE, PACKET_HOST },
		{ BPF_B, NET(0), 0x45 }, /* IPv4 without options */
		{ BPF_B, NET(9), IPPROTO_UDP },
		{ BPF_W, NET(12), ipv4_of(wire->remote) },
		{ BPF_W, NET(16), ipv4_of(wire->keeper->local) },
		{ BPF_H, NET(22), NUPA_WIRE_UDP_PORT },
		{ BPF_B, NET(28 + 5), slot }, /* the highest byte of the destination QP number */
	};
	enum { WANTED = sizeof(wanted) / sizeof(wanted[0]) };
	struct sock_filter code[2 * WANTED + 2];
	const int locked = 1;
	int error;

	for (uint32_t i = 0; i < WANTED; i++) {
		code[2 * i] =
		    (struct sock_filter)BPF_STMT(BPF_LD | wanted[i].size | BPF_ABS, wanted[i].at);
		code[2 * i + 1] =
		    (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, wanted[i].is, 0,
						 (uint8_t)(2 * (WANTED - 1 - i) + 1));
	}
	code[2 * WANTED] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
	code[2 * WANTED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	error = set_filter(fd, code, 2 * WANTED + 2);
	return error ? error : set(fd, SOL_SOCKET, SO_LOCK_FILTER, &locked, sizeof(locked));
}

/* A socket for the packets of a wire to a slot, or -errno. */
static int make_socket(const struct nupa_kept *wire, uint32_t slot)
{
	const struct sockaddr_ll all = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP) };
	const int on = 1, room = RECEIVE_BYTES;
	/* Of no protocol until it is bound: nothing comes before the filter. */
	const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error;

	if (fd < 0)
		return -errno;
	if (set(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)))
		(void)set(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	error = filter_slot(fd, wire, slot);
	if (!error)
		error = set(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on));
	if (!error)
		error = set(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on));
	if (!error && bind(fd, (const struct sockaddr *)&all, sizeof(all)))
		error = -errno;
	if (!error)
		return fd;
	close(fd);
	return error;
}

/* --- processes ----------------------------------------------------------------------- */

static int join(struct nupa_keeper *keeper, struct nupa_member *member,
		int sockets[NUPA_MEDIUM_SOCKETS_MAX])
{
	struct sock_filter nothing[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
	const int packets = make_socket(member->wire, member->slot);
	const int n = packets < 0 ? packets : nupa_medium_udp.join(keeper, member, sockets);

	if (n < 0) {
		if (packets >= 0)
			close(packets);
		return n;
	}
	(void)set_filter(member->udp, nothing, 1); /* R2; else they fill its room, unread */
	sockets[n] = packets;
	return n + 1;
}

static void leave(struct nupa_keeper *keeper, struct nupa_member *member)
{
	nupa_medium_udp.leave(keeper, member);
}

/* --- the keeper's own ---------------------------------------------------------------- */

/* Takes what came in one; false: there is nothing. */
static bool take(struct nupa_keeper *keeper, struct nupa_kept *wire)
{
	uint8_t bytes[NUPA_RAW_HEADERS_MAX_BYTES + NUPA_ICRC_PACKET_MAX_BYTES];
	_Alignas(struct cmsghdr) uint8_t control[64];
	struct iovec piece = { bytes, sizeof(bytes) };
	struct msghdr msg = { .msg_iov = &piece,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct nupa_keeper_packet packet = { .identified = true };
	struct nupa_packets came;
	const ssize_t n = recvmsg(wire->source.fd, &msg, MSG_DONTWAIT);

	if (n < 0)
		return errno == EINTR;
	if (!nupa_raw_read(&msg, (uint32_t)n, &came)) {
		__atomic_fetch_add(&wire->entry->malformed, 1, __ATOMIC_RELAXED);
		return true;
	}
	packet.path = came.path;
	for (uint32_t at = 0, nth = 0; at < came.n; at += came.segment, nth++) {
		packet.bytes = came.bytes + at;
		packet.n = came.segment < came.n - at ? came.segment : came.n - at;
		packet.path.identification = (uint16_t)(came.path.identification + nth);
		if (nth && !nupa_keeper_icrc(&packet))
			packet.path.identification = came.path.identification;
		nupa_keeper_forward(keeper, &packet, NULL);
	}
	return true;
}

static void arrived(struct nupa_keeper *keeper, struct nupa_keeper_source *source, uint32_t events)
{
	struct nupa_kept *wire = container_of(source, struct nupa_kept, source);

	(void)events;
	for (uint32_t i = 0; i < BURST && take(keeper, wire); i++)
		;
}

/* --- the medium ---------------------------------------------------------------------- */

static int explain(int error, char *why, size_t why_bytes)
{
	char program[256];
	const ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (error != -EPERM)
		return nupa_explain(error, why, why_bytes, "cannot open a packet socket: %s%s",
				    strerror(-error), nupa_remedy(-error));
	program[n > 0 ? n : 0] = 0;
	return nupa_explain(error, why, why_bytes,
			    "a raw socket needs CAP_NET_RAW: let root run `setcap cap_net_raw+ep "
			    "%s`, or leave --raw out",
			    program);
}

static int open_raw(struct nupa_keeper *keeper, struct nupa_kept *wire, const char *guest,
		    char *why, size_t why_bytes)
{
	int fd, error;

	if (!keeper->ipv4)
		return nupa_explain(-EAFNOSUPPORT, why, why_bytes,
				    "IPv6 has no identification, so that the check of packets is "
				    "exact by UDP: leave --raw out");
	fd = make_socket(wire, SLOT_OF_QP1);
	if (fd < 0)
		return explain(fd, why, why_bytes);
	wire->source = (struct nupa_keeper_source){ .fd = fd, .ready = arrived };
	error = nupa_keeper_watch(keeper, &wire->source);
	error = error ? explain(error, why, why_bytes)
		      : nupa_medium_udp.open(keeper, wire, guest, why, why_bytes);
	if (error)
		nupa_keeper_unwatch(keeper, &wire->source);
	return error;
}

static void close_raw(struct nupa_keeper *keeper, struct nupa_kept *wire)
{
	nupa_keeper_unwatch(keeper, &wire->source);
	nupa_medium_udp.close(keeper, wire);
}

static int send_raw(struct nupa_keeper *keeper, struct nupa_kept *wire,
		    const struct nupa_roce_path *path, const struct iovec *packet, int n)
{
	return nupa_medium_udp.send(keeper, wire, path, packet, n);
}

const struct nupa_medium nupa_medium_raw = {
	.identifies = true,
	.open = open_raw,
	.close = close_raw,
	.join = join,
	.leave = leave,
	.send = send_raw,
};
