/* SPDX-License-Identifier: BSD-3-Clause
 * A keeper's loop, and its wires. */
#include "base/explain.h"
#include "segment/slot/slot.h"
#include "wire/keeper_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

/* --- addresses ----------------------------------------------------------------------- */

bool nupa_keeper_is_ipv4(const uint8_t gid[16])
{
	return !memcmp(gid, mapped, sizeof(mapped));
}

void nupa_keeper_address(const uint8_t gid[16], uint16_t port, union nupa_keeper_address *address)
{
	memset(address, 0, sizeof(*address));
	if (nupa_keeper_is_ipv4(gid)) {
		address->v4.sin_family = AF_INET;
		address->v4.sin_port = htons(port);
		memcpy(&address->v4.sin_addr, gid + 12, 4);
	} else {
		address->v6.sin6_family = AF_INET6;
		address->v6.sin6_port = htons(port);
		memcpy(&address->v6.sin6_addr, gid, 16);
	}
}

socklen_t nupa_keeper_address_bytes(const union nupa_keeper_address *address)
{
	return address->any.sa_family == AF_INET ? sizeof(address->v4) : sizeof(address->v6);
}

bool nupa_keeper_gid(const union nupa_keeper_address *address, uint8_t gid[16], uint16_t *port)
{
	if (address->any.sa_family == AF_INET) {
		memcpy(gid, mapped, sizeof(mapped));
		memcpy(gid + 12, &address->v4.sin_addr, 4);
		*port = ntohs(address->v4.sin_port);
		return true;
	}
	if (address->any.sa_family != AF_INET6)
		return false;
	memcpy(gid, &address->v6.sin6_addr, 16);
	*port = ntohs(address->v6.sin6_port);
	return true;
}

struct nupa_kept *nupa_keeper_wire_to(struct nupa_keeper *keeper, const uint8_t remote[16])
{
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++)
		if (keeper->wires[i] && !memcmp(keeper->wires[i]->remote, remote, 16))
			return keeper->wires[i];
	return NULL;
}

/* --- the loop ------------------------------------------------------------------------ */

int nupa_keeper_watch(struct nupa_keeper *keeper, struct nupa_keeper_source *source)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = source };

	return epoll_ctl(keeper->epoll, EPOLL_CTL_ADD, source->fd, &event) ? -errno : 0;
}

void nupa_keeper_unwatch(struct nupa_keeper *keeper, struct nupa_keeper_source *source)
{
	if (source->fd < 0)
		return;
	(void)epoll_ctl(keeper->epoll, EPOLL_CTL_DEL, source->fd, NULL);
	close(source->fd);
	source->fd = -1;
}

static bool is_fenced(const struct nupa_keeper *keeper)
{
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		const struct nupa_kept *wire = keeper->wires[i];

		if (wire && nupa_slot_claim(wire->engine->slot) != wire->engine->claim)
			return true;
	}
	return false;
}

static enum nupa_keeper_event take_request(struct nupa_keeper *keeper, char *text,
					   size_t text_bytes, int *fd)
{
	snprintf(text, text_bytes, "%s", keeper->request);
	*fd = keeper->request_fd;
	keeper->request_fd = -1;
	return NUPA_KEEPER_REQUEST;
}

enum nupa_keeper_event nupa_keeper_run(struct nupa_keeper *keeper, int wake, int timeout_ms,
				       char *text, size_t text_bytes, int *fd)
{
	const uint64_t end_ns = nupa_clock_ns() + (uint64_t)timeout_ms * 1000000;

	for (;;) {
		struct pollfd fds[] = { { .fd = wake, .events = POLLIN },
					{ .fd = keeper->epoll, .events = POLLIN } };
		uint64_t now_ns = nupa_clock_ns();
		const int left_ms =
		    now_ns < end_ns ? (int)((end_ns - now_ns + 999999) / 1000000) : 0;
		const int tick_ms = nupa_keeper_tick(keeper, now_ns);
		struct epoll_event event;

		if (is_fenced(keeper))
			return NUPA_KEEPER_FENCED;
		(void)poll(fds, 2, tick_ms < left_ms ? tick_ms : left_ms);
		if (fds[0].revents)
			return NUPA_KEEPER_WOKEN;
		/* One at a time: it may end another one's source. */
		if (fds[1].revents && epoll_wait(keeper->epoll, &event, 1, 0) == 1) {
			struct nupa_keeper_source *source = event.data.ptr;

			source->ready(keeper, source, event.events);
		}
		if (keeper->request_fd >= 0)
			return take_request(keeper, text, text_bytes, fd);
		if (nupa_clock_ns() >= end_ns)
			return NUPA_KEEPER_TIME;
	}
}

/* --- wires --------------------------------------------------------------------------- */

struct nupa_keeper *nupa_keeper_open(struct nupa_fabric *fabric, const uint8_t local[16], char *why,
				     size_t why_bytes)
{
	struct nupa_keeper *keeper = calloc(1, sizeof(*keeper));

	if (!keeper) {
		nupa_explain(0, why, why_bytes, "no memory for a keeper");
		errno = ENOMEM;
		return NULL;
	}
	memcpy(keeper->local, local, 16);
	nupa_keeper_address(local, NUPA_WIRE_UDP_PORT, &keeper->from);
	keeper->ipv4 = nupa_keeper_is_ipv4(local);
	keeper->udp.fd = keeper->errors.fd = keeper->claim = keeper->request_fd = -1;
	keeper->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (keeper->epoll < 0) {
		const int error = errno;

		nupa_explain(0, why, why_bytes, "epoll_create1: %s%s", strerror(error),
			     nupa_remedy(error));
		free(keeper);
		errno = error;
		return NULL;
	}
	keeper->fabric = nupa_fabric_get(fabric);
	return keeper;
}

static void free_wire(struct nupa_keeper *keeper, struct nupa_kept *wire)
{
	nupa_notes_close(wire);
	nupa_members_end(keeper, wire);
	if (wire->listener.fd >= 0) {
		nupa_keeper_unwatch(keeper, &wire->listener);
		unlink(wire->path);
	}
	if (wire->medium)
		wire->medium->close(keeper, wire);
	if (wire->engine)
		nupa_engine_detach(wire->engine);
	free(wire);
}

static int take_down(struct nupa_keeper *keeper, uint32_t at)
{
	struct nupa_kept *wire = keeper->wires[at];
	const int error = nupa_wire_remove(keeper->fabric, wire->index);

	keeper->wires[at] = NULL;
	free_wire(keeper, wire);
	return error;
}

void nupa_keeper_close(struct nupa_keeper *keeper)
{
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++)
		if (keeper->wires[i])
			(void)take_down(keeper, i);
	if (keeper->request_fd >= 0)
		close(keeper->request_fd);
	close(keeper->epoll);
	nupa_fabric_put(keeper->fabric);
	free(keeper);
}

static struct nupa_wire_info info_of(const struct nupa_kept *wire, uint32_t medium)
{
	struct nupa_wire_info info = { .host = wire->host,
				       .state = NUPA_WIRE_STARTING,
				       .medium = medium,
				       .mtu_bytes = NUPA_WIRE_MTU_MIN_BYTES };

	memcpy(info.remote, wire->remote, 16);
	memcpy(info.local, wire->keeper->local, 16);
	memcpy(info.socket, wire->path, sizeof(info.socket));
	return info;
}

static int attach(struct nupa_kept *wire, char *why, size_t why_bytes)
{
	const struct nupa_wire_info info = info_of(wire, NUPA_WIRE_UDP);
	const int index = nupa_wire_reserve(wire->keeper->fabric, &info, why, why_bytes);

	if (index < 0)
		return index;
	wire->index = (uint32_t)index;
	wire->engine = nupa_engine_attach(wire->keeper->fabric, wire->host, why, why_bytes);
	if (!wire->engine)
		return -errno;
	nupa_engine_lock(wire->engine);
	wire->engine->keeps_wire = true;
	nupa_engine_unlock(wire->engine);
	return 0;
}

static int publish(struct nupa_kept *wire, uint32_t medium, uint32_t mtu_bytes, char *why,
		   size_t why_bytes)
{
	struct nupa_wire_info info = info_of(wire, medium);
	int index;

	info.slot = wire->engine->slot_index;
	info.epoch = wire->engine->epoch;
	info.mtu_bytes = mtu_bytes;
	index = nupa_wire_add(wire->keeper->fabric, &info, why, why_bytes);
	if (index < 0)
		return index;
	wire->entry = nupa_wire_at(wire->keeper->fabric, wire->index);
	return wire->entry ? 0 : -ESTALE;
}

static int open_wire(struct nupa_kept *wire, uint32_t medium, const char *guest, char *why,
		     size_t why_bytes)
{
	struct nupa_keeper *keeper = wire->keeper;
	uint32_t mtu_bytes;
	int error;

	error = attach(wire, why, why_bytes);
	if (error)
		return error;
	wire->medium = nupa_medium_of(medium);
	error = wire->medium->open(keeper, wire, guest, why, why_bytes);
	if (error) {
		wire->medium = NULL;
		return error;
	}
	mtu_bytes = nupa_probe_mtu(wire);
	if (!mtu_bytes)
		return nupa_explain(-EMSGSIZE, why, why_bytes,
				    "the way there carries packets that are too small for RoCE: "
				    "raise the MTU of the interface to 352 bytes at least");
	error = nupa_member_listen(wire);
	if (error)
		return nupa_explain(error, why, why_bytes, "cannot listen at %s: %s%s", wire->path,
				    strerror(-error), nupa_remedy(-error));
	return publish(wire, medium, mtu_bytes, why, why_bytes);
}

int nupa_keeper_add(struct nupa_keeper *keeper, uint32_t host, const uint8_t remote[16],
		    uint32_t medium, const char *path, const char *guest, char *why,
		    size_t why_bytes)
{
	struct nupa_kept *wire;
	uint32_t at = 0;
	int error;

	while (at < NUPA_WIRES_MAX && keeper->wires[at])
		at++;
	if (at == NUPA_WIRES_MAX)
		return nupa_explain(-ENOSPC, why, why_bytes,
				    "this fabric has %u wires, as many as it can: remove one",
				    NUPA_WIRES_MAX);
	if (!nupa_medium_of(medium))
		return nupa_explain(-EINVAL, why, why_bytes,
				    "this version has no wires of medium %u: choose udp", medium);
	if (strlen(path) >= NUPA_WIRE_SOCKET_BYTES)
		return nupa_explain(-ENAMETOOLONG, why, why_bytes,
				    "the socket %s has a longer path than %u bytes: choose a "
				    "shorter NUPA_DIR",
				    path, NUPA_WIRE_SOCKET_BYTES - 1);
	if (nupa_keeper_is_ipv4(remote) != keeper->ipv4)
		return nupa_explain(-EAFNOSUPPORT, why, why_bytes,
				    "one address is IPv4 and the other one IPv6: give two of one "
				    "family");
	wire = calloc(1, sizeof(*wire));
	if (!wire)
		return nupa_explain(-ENOMEM, why, why_bytes, "no memory for a wire");
	nupa_notes_open(wire);
	wire->keeper = keeper;
	wire->host = host;
	wire->index = NUPA_WIRES_MAX; /* none yet */
	wire->listener.fd = wire->source.fd = -1;
	memcpy(wire->remote, remote, 16);
	memcpy(wire->path, path, strlen(path));
	nupa_keeper_address(remote, NUPA_WIRE_UDP_PORT, &wire->to);
	nupa_fabric_reap(keeper->fabric); /* a dead keeper may be on the host */
	error = open_wire(wire, medium, guest, why, why_bytes);
	if (error) {
		(void)nupa_wire_remove(keeper->fabric, wire->index);
		free_wire(keeper, wire);
		return error;
	}
	keeper->wires[at] = wire;
	(void)nupa_steer(keeper);
	return (int)wire->index;
}

int nupa_keeper_remove(struct nupa_keeper *keeper, uint32_t host)
{
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++)
		if (keeper->wires[i] && keeper->wires[i]->host == host)
			return take_down(keeper, i);
	return -ENOENT;
}

uint32_t nupa_keeper_wires(const struct nupa_keeper *keeper)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++)
		n += keeper->wires[i] != NULL;
	return n;
}
