/* SPDX-License-Identifier: BSD-3-Clause
 * The medium of a guest's Ethernet frames, at a Unix socket that QEMU connects to: PATH, or
 * PATH,mtu=BYTES where the guest's interface has another MTU than Ethernet's 1500. */
#include "base/explain.h"
#include "wire/frames/frames.h"
#include "wire/keeper_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ETHERNET_MTU_BYTES 1500u
#define MTU_BYTES_MAX 65521u /* QEMU's */
#define MTU_OPTION ",mtu="

struct guest {
	struct nupa_frames *frames;
	uint32_t roce_mtu_bytes;
};

static void receive(void *context, const struct nupa_frame_packet *frame)
{
	const struct nupa_kept *wire = context;
	struct nupa_keeper_packet packet = {
		.path = { .src_port = frame->src_port,
			  .identification = frame->identification,
			  .tos = frame->tos,
			  .ttl = frame->ttl },
		.identified = true,
		.bytes = frame->data,
		.n = frame->bytes,
	};

	memcpy(packet.path.src, frame->src, sizeof(frame->src));
	memcpy(packet.path.dst, frame->dst, sizeof(frame->dst));
	nupa_keeper_forward(wire->keeper, &packet, NULL);
}

static void ready(struct nupa_keeper *keeper, struct nupa_keeper_source *source, uint32_t events)
{
	struct nupa_kept *wire =
	    (struct nupa_kept *)(void *)((char *)source - offsetof(struct nupa_kept, source));
	struct guest *guest = wire->frames;
	const struct nupa_frames_counters *counters = nupa_frames_counters(guest->frames);
	uint64_t malformed = counters->malformed, foreign = counters->foreign;

	(void)keeper;
	(void)events;
	nupa_frames_turn(guest->frames);
	malformed = counters->malformed - malformed;
	foreign = counters->foreign - foreign;
	if (malformed)
		__atomic_fetch_add(&wire->entry->malformed, malformed, __ATOMIC_RELAXED);
	if (foreign)
		__atomic_fetch_add(&wire->entry->foreign, foreign, __ATOMIC_RELAXED);
}

/* The path of PATH,mtu=BYTES into *path*, and the RoCE MTU: 0 or -EINVAL. */
static int parse(const char *text, char path[NUPA_WIRE_SOCKET_BYTES], uint32_t *roce_mtu_bytes)
{
	const char *option = strstr(text, MTU_OPTION);
	size_t bytes = option ? (size_t)(option - text) : strlen(text);
	unsigned long mtu = ETHERNET_MTU_BYTES;
	char *end;

	if (option) {
		option += strlen(MTU_OPTION);
		errno = 0;
		mtu = strtoul(option, &end, 10);
		if (errno || *option < '0' || *option > '9' || *end || mtu > MTU_BYTES_MAX)
			return -EINVAL;
	}
	*roce_mtu_bytes = nupa_wire_mtu_of_path((uint32_t)mtu);
	if (!*roce_mtu_bytes || !bytes || bytes >= NUPA_WIRE_SOCKET_BYTES)
		return -EINVAL;
	memcpy(path, text, bytes);
	path[bytes] = '\0';
	return 0;
}

static int explain_open(int error, const char *path, char *why, size_t why_bytes)
{
	if (error == -EADDRINUSE)
		return nupa_explain(error, why, why_bytes,
				    "%s is in use, by another program that listens there or as a "
				    "file: name another path with --frames",
				    path);
	if (error == -EINVAL)
		return nupa_explain(error, why, why_bytes,
				    "frames need two addresses of one family, a remote and a local "
				    "one: give the latter with --listen");
	return nupa_explain(error, why, why_bytes, "cannot listen at %s: %s", path,
			    strerror(-error));
}

static int open_guest(struct nupa_keeper *keeper, struct nupa_kept *wire, const char *at, char *why,
		      size_t why_bytes)
{
	char path[NUPA_WIRE_SOCKET_BYTES];
	struct guest *guest = calloc(1, sizeof(*guest));
	int error;

	if (!guest)
		return nupa_explain(-ENOMEM, why, why_bytes, "no memory");
	error = parse(at, path, &guest->roce_mtu_bytes);
	if (error) {
		free(guest);
		return nupa_explain(error, why, why_bytes,
				    "--frames is '%s': give a socket's path of at most %u bytes, "
				    "and ,mtu=BYTES (328 to %u) if the guest's MTU is not %u",
				    at, NUPA_WIRE_SOCKET_BYTES - 1, MTU_BYTES_MAX,
				    ETHERNET_MTU_BYTES);
	}
	error = nupa_frames_open(&guest->frames, path, keeper->local, wire->remote, receive, wire);
	if (error) {
		free(guest);
		return explain_open(error, path, why, why_bytes);
	}
	wire->frames = guest;
	wire->source =
	    (struct nupa_keeper_source){ .fd = nupa_frames_fd(guest->frames), .ready = ready };
	error = nupa_keeper_watch(keeper, &wire->source);
	if (!error)
		return 0;
	nupa_frames_close(guest->frames);
	free(guest);
	wire->frames = NULL;
	return nupa_explain(error, why, why_bytes, "cannot watch %s: %s", path, strerror(-error));
}

static void close_guest(struct nupa_keeper *keeper, struct nupa_kept *wire)
{
	struct guest *guest = wire->frames;

	(void)keeper;
	/* Its file is closed with it, and so leaves the loop. */
	wire->source.fd = -1;
	wire->frames = NULL;
	if (!guest)
		return;
	nupa_frames_close(guest->frames);
	free(guest);
}

static int join(struct nupa_keeper *keeper, struct nupa_member *member,
		int sockets[NUPA_MEDIUM_SOCKETS_MAX])
{
	(void)keeper;
	(void)member;
	(void)sockets;
	return 0; /* all goes by the keeper */
}

static void leave(struct nupa_keeper *keeper, struct nupa_member *member)
{
	(void)keeper;
	(void)member;
}

static uint32_t mtu_bytes(struct nupa_kept *wire)
{
	const struct guest *guest = wire->frames;

	return guest->roce_mtu_bytes;
}

static int send_frame(struct nupa_keeper *keeper, struct nupa_kept *wire,
		      const struct nupa_roce_path *path, const struct iovec *packet, int n)
{
	const struct guest *guest = wire->frames;
	uint8_t bytes[NUPA_WIRE_PACKET_MAX_BYTES];
	struct nupa_frame_packet frame = { .identification = path->identification,
					   .src_port = path->src_port,
					   .tos = path->tos,
					   .ttl = path->ttl,
					   .data = bytes };

	(void)keeper;
	for (int i = 0; i < n; i++) {
		if (packet[i].iov_len > sizeof(bytes) - frame.bytes)
			return -EMSGSIZE;
		memcpy(bytes + frame.bytes, packet[i].iov_base, packet[i].iov_len);
		frame.bytes += (uint32_t)packet[i].iov_len;
	}
	int error = nupa_frames_send(guest->frames, &frame);
	/* What does not go is lost, as on a network. */
	return error == -ENOBUFS ? -EAGAIN : error;
}

const struct nupa_medium nupa_medium_frames = {
	.relays = true,
	.open = open_guest,
	.close = close_guest,
	.join = join,
	.leave = leave,
	.mtu_bytes = mtu_bytes,
	.send = send_frame,
};
